"""The scripts against a plain model of the rules, step by step."""
