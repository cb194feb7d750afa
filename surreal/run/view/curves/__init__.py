"""Learning curves of one run and of many: over env steps, updates or seconds, smoothed, with confidence bands.

Pure: arrays in, arrays out. `surreal plot` draws them into a file, `surreal dashboard` onto a page.
"""
