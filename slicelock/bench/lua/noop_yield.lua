-- Does nothing, and answers as a yield does.
return { 'YIELDED', 'waiters', '0' }
