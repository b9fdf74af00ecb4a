"""Makes screenshots small: a palette of 256 colours, which is enough for what is drawn in flat ones."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

# Colours that are near each other count together, and the most frequent of them stands for all. Of these,
# those are kept that matter most: by how many pixels, and how far from any other. Chromium can decode, so it
# does all this.
REDUCE = """async png => {
  const bytes = Uint8Array.from(atob(png), letter => letter.charCodeAt(0));
  const image = await createImageBitmap(new Blob([bytes], {type: "image/png"}));
  const pen = new OffscreenCanvas(image.width, image.height).getContext("2d");
  pen.drawImage(image, 0, 0);
  const pixels = new Uint32Array(pen.getImageData(0, 0, image.width, image.height).data.buffer);
  const counts = new Map(), nearby = new Map();
  for (const pixel of pixels) counts.set(pixel, (counts.get(pixel) || 0) + 1);
  const parts = colour => [colour & 255, colour >> 8 & 255, colour >> 16 & 255];
  for (const [colour, count] of counts) {
    const about = parts(colour).map(part => part >> 3).join();
    const its = nearby.get(about) || {count: 0, most: 0, colour};
    its.count += count;
    if (count > its.most) Object.assign(its, {most: count, colour});
    nearby.set(about, its);
  }
  const off = (one, two) => one.reduce((sum, part, at) => sum + (part - two[at]) ** 2, 0);
  const left = [...nearby.values()].map(one => ({...one, parts: parts(one.colour), off: 1e9})), palette = [];
  while (palette.length < Math.min(256, left.length)) {
    const next = left.reduce((best, one) => one.count * one.off > best.count * best.off ? one : best);
    palette.push(next.parts);
    for (const one of left) one.off = Math.min(one.off, off(one.parts, next.parts));
  }
  const place = new Map();
  for (const colour of counts.keys()) {
    const offs = palette.map(one => off(one, parts(colour)));
    place.set(colour, offs.indexOf(Math.min(...offs)));
  }
  let text = "";
  for (const pixel of pixels) text += String.fromCharCode(place.get(pixel));
  return {width: image.width, height: image.height, palette, places: btoa(text)};
}"""


def smaller(browser: Any, png: bytes) -> bytes:
    """The same picture with a palette."""
    tab = browser.new_page()
    told = tab.evaluate(REDUCE, base64.b64encode(png).decode())
    tab.close()
    width, height, places = told["width"], told["height"], base64.b64decode(told["places"])
    rows = (b"\0" + places[at : at + width] for at in range(0, width * height, width))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        (
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            _chunk(b"PLTE", bytes(part for colour in told["palette"] for part in colour)),
            _chunk(b"IDAT", zlib.compress(b"".join(rows), 9)),
            _chunk(b"IEND", b""),
        )
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
