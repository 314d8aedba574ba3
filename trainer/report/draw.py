"""draw.py -- charts as SVG inside the page: lines, columns, the timeline. Colours are the page's.

A chart is a string. Its coordinates are those of its viewBox, so it scales with the page; classes
s0, s1, ... name the colours of runs, k-compute etc. those of spans. What a pointer shows is in the
title of each mark and, for lines, in data-points, which hover.js reads.
"""

import html
import json
import math

WIDTH, HEIGHT = 480, 270
LEFT, RIGHT, TOP, BOTTOM = 58, 12, 12, 40
POINTS_MAX = 400  # Of a line: two for each pixel that it has.
SPANS_MAX = 6000  # Of a timeline.
COLOURS = 8

escape = html.escape


def number(value, digits=4):
    """Short, for people: 12 300 000 -> 12.3M."""
    if value == 0:
        return "0"
    size = abs(value)
    for bound, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= bound:
            unit_value = {"T": 1e12, "G": 1e9, "M": 1e6, "k": 1e3}[unit]
            return f"{value / unit_value:.{digits}g}{unit}"
    if size >= 1000:
        return f"{value:.0f}"
    if size < 1e-4:
        return f"{value:.{min(digits, 3)}g}"
    return f"{value:.{digits}g}"


def percent(value):
    return f"{100 * value:.2f} %"


def whole_percent(value):
    return f"{100 * value:.4g} %"


def seconds(value):
    for bound, unit, factor in ((1e-3, "us", 1e6), (1, "ms", 1e3)):
        if 0 < abs(value) < bound:
            return f"{value * factor:.4g} {unit}"
    if value >= 600:
        return f"{value // 60:.0f} min {value % 60:.0f} s"
    return f"{value:.4g} s"


def size(value):
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(value) < 1000 or unit == "TB":
            return f"{value:.4g} {unit}"
        value /= 1000
    return ""


def ticks(low, high, wanted=5):
    """Round numbers, 1, 2 or 5 times a power of ten apart."""
    if high <= low:
        return [low]
    raw = (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.7)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [index * step for index in range(first, last + 1)]


def log_ticks(low, high):
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    few = math.log10(high / low) < 2.2
    steps = (1, 2, 5) if few else (1,)
    every = max(1, len(powers) // 6)
    return [step * 10.0 ** power for power in powers if power % every == 0 for step in steps
            if low * 0.999 <= step * 10.0 ** power <= high * 1.001]


def thin(points):
    """At most POINTS_MAX points; of each stretch the lowest and the highest stay."""
    if len(points) <= POINTS_MAX:
        return points
    kept = [points[0]]
    stretch = 2 * len(points) / POINTS_MAX
    begin = 0.0
    while begin < len(points):
        part = points[int(begin):int(begin + stretch)] or points[int(begin):]
        ends = {min(part, key=lambda p: p[1]), max(part, key=lambda p: p[1])}
        kept += sorted(ends)
        begin += stretch
    return kept + [points[-1]]


def bins(points, how, count=200):
    """Means (or maxima) of neighbours, so that thousands of rounds make one line."""
    if len(points) <= count:
        return points
    out = []
    for index in range(count):
        part = points[len(points) * index // count:len(points) * (index + 1) // count]
        out.append((part[0][0], how([y for _, y in part])))
    return out


class Series:
    """style: line, dots (a thin line with marks) or steps."""

    def __init__(self, label, points, colour, style="line"):
        self.label, self.colour, self.style = label, colour, style
        self.points = thin([point for point in points if all(map(math.isfinite, point))])


class Scale:
    def __init__(self, low, high, begin, end, log=False):
        self.log, self.low, self.high = log, low, high
        self.begin, self.end = begin, end

    def __call__(self, value):
        if self.log:
            share = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.begin + share * (self.end - self.begin)


def fits_log(values):
    return min(values) > 0 and max(values) / min(values) > 5


def y_scale(values, log, zero, top):
    low, high = min(values), max(values)
    if log:
        return Scale(low * 0.9, high * 1.1, HEIGHT - BOTTOM, TOP, True)
    if zero:
        low, high = min(low, 0), max(high, 0)
    pad = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    low = low if zero and low == 0 else low - pad
    high = high + pad
    if top is not None:
        high = min(high, top)
    return Scale(low, high, HEIGHT - BOTTOM, TOP)


def axes(x, y, x_label, x_text, y_text):
    out = []
    if y_text is percent:
        y_text = whole_percent
    for tick in log_ticks(y.low, y.high) if y.log else ticks(y.low, y.high):
        at = y(tick)
        out.append(f'<path class="grid" d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}"/>'
                   f'<text x="{LEFT - 7}" y="{at + 4:.1f}" class="end">{escape(y_text(tick))}'
                   "</text>")
    base = HEIGHT - BOTTOM
    out.append(f'<path class="axis" d="M{LEFT} {base}H{WIDTH - RIGHT}"/>')
    for tick in ticks(x.low, x.high):
        at = min(max(x(tick), LEFT), WIDTH - RIGHT - 8)
        out.append(f'<path class="axis" d="M{x(tick):.1f} {base}v4"/>'
                   f'<text x="{at:.1f}" y="{base + 17}" class="mid">{escape(x_text(tick))}</text>')
    out.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 5}" class="end label">{escape(x_label)}'
               "</text>")
    return "".join(out)


def path_of(series, x, y):
    spots = [f"{x(a):.1f} {y(b):.1f}" for a, b in series.points]
    if series.style == "steps":
        out = [f"M{spots[0]}"]
        for (_, old), (a, b) in zip(series.points, series.points[1:]):
            out.append(f"H{x(a):.1f}" + (f"V{y(b):.1f}" if b != old else ""))
        return "".join(out)
    return "M" + "L".join(spots)


def draw_series(series, x, y, x_text, y_text):
    data = [[round(x(a), 1), round(y(b), 1), x_text(a), y_text(b)] for a, b in series.points]
    points = escape(json.dumps(data, separators=(",", ":"), ensure_ascii=True))
    marks = ""
    if series.style == "dots" or len(series.points) == 1:
        every = max(1, len(series.points) // 60)
        marks = "".join(f'<circle cx="{x(a):.1f}" cy="{y(b):.1f}" r="3.2"/>'
                        for a, b in series.points[::-every])
    return (f'<g class="series s{series.colour % COLOURS} {series.style}" '
            f'data-label="{escape(series.label)}" data-points="{points}">'
            f'<path d="{path_of(series, x, y)}"/>{marks}</g>')


def line_chart(all_series, what, x_label, y_text=number, x_text=number, log=False, zero=False,
               top=None):
    """None where there is nothing to draw. `log`: where the values fit it."""
    all_series = [series for series in all_series if series.points]
    values = [y for series in all_series for _, y in series.points]
    if not values:
        return None
    places = [x for series in all_series for x, _ in series.points]
    low, high = min(places + [0]), max(places)
    x = Scale(low, high if high > low else low + 1, LEFT, WIDTH - RIGHT)
    y = y_scale(values, log and fits_log(values), zero, top)
    body = "".join(draw_series(series, x, y, x_text, y_text) for series in all_series)
    return (f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
            f'aria-label="{escape(what)}">{axes(x, y, x_label, x_text, y_text)}{body}'
            f'<path class="rule" d="M0 {TOP}V{HEIGHT - BOTTOM}"/></svg>')


PARTS = (("compute", "gradients"), ("delay", "injected delay"),
         ("communication", "blocked in communication"), ("other", "other"))


def columns(parts, what, high):
    """Per rank a column: its seconds, part upon part; `high`: where the scale ends."""
    y = Scale(0, (high or 1.0) * 1.04, HEIGHT - BOTTOM, TOP)
    pitch = (WIDTH - LEFT - RIGHT) / len(parts)
    width = min(pitch * 0.8 if pitch > 5 else pitch, 60)
    body = []
    for tick in ticks(0, y.high):
        body.append(f'<path class="grid" d="M{LEFT} {y(tick):.1f}H{WIDTH - RIGHT}"/>'
                    f'<text x="{LEFT - 7}" y="{y(tick) + 4:.1f}" class="end">'
                    f"{escape(seconds(tick))}</text>")
    every = math.ceil(26 / pitch)
    for rank, row in enumerate(parts):
        left, base = LEFT + (rank + 0.5) * pitch, 0.0
        whole = sum(row) or 1.0
        for (kind, label), value in zip(PARTS, row):
            if value <= 0:
                continue
            tip = f"rank {rank}: {label} {seconds(value)} ({percent(value / whole)})"
            body.append(f'<rect class="k-{kind}" x="{left - width / 2:.2f}" '
                        f'y="{y(base + value):.2f}" width="{width:.2f}" '
                        f'height="{y(base) - y(base + value):.2f}"><title>{escape(tip)}</title>'
                        "</rect>")
            base += value
        if rank % every == 0:
            body.append(f'<text x="{left:.1f}" y="{HEIGHT - BOTTOM + 17}" class="mid">{rank}'
                        "</text>")
    base = HEIGHT - BOTTOM
    return (f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(what)}">'
            f'{"".join(body)}<path class="axis" d="M{LEFT} {base}H{WIDTH - RIGHT}"/>'
            f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 5}" class="end label">rank</text></svg>')


LINE_WIDTH, LINE_LEFT = 1080, 64
RANKS_MAX = 64
THIN = ("average", "reduction")  # Below what goes on beside them.


def draw_span(span, row, high, x, begin, end):
    tip = f"rank {span.rank}: {span.kind}, {seconds(span.length)}, at {seconds(span.begin)}"
    left, right = x(max(span.begin, begin)), x(min(span.begin + span.length, end))
    if span.length == 0:
        return (f'<path class="k-{escape(span.kind)} moment" d="M{left:.1f} {row - 2}v{high + 4}">'
                f"<title>{escape(tip)}</title></path>")
    thin_row = span.kind in THIN
    top = row + high * 0.7 if thin_row else row
    return (f'<rect class="k-{escape(span.kind)}" x="{left:.2f}" y="{top:.1f}" '
            f'width="{max(right - left, 0.3):.2f}" height="{high * (0.3 if thin_row else 1):.1f}">'
            f"<title>{escape(tip)}</title></rect>")


def timeline(spans, begin, length, what):
    """A row for each rank: what it did in these seconds."""
    ranks = sorted(spans)[:RANKS_MAX]
    high = 20 if len(ranks) <= 16 else 8
    pitch = high + (7 if high > 8 else 3)
    end, base = begin + length, 10 + pitch * len(ranks)
    x = Scale(begin, end, LINE_LEFT, LINE_WIDTH - 16)
    body, count = [], 0
    for index, rank in enumerate(ranks):
        row = 10 + index * pitch
        if high > 8 or index % 4 == 0:
            body.append(f'<text x="{LINE_LEFT - 8}" y="{row + high / 2 + 4:.1f}" class="end">'
                        f"rank {rank}</text>")
        body.append(f'<rect class="k-idle" x="{LINE_LEFT}" y="{row}" '
                    f'width="{LINE_WIDTH - 16 - LINE_LEFT}" height="{high}"/>')
        inside = [span for span in spans[rank]
                  if span.begin <= end and span.begin + span.length >= begin]
        inside.sort(key=lambda span: (span.length == 0, span.kind in THIN))
        for span in inside[:max(0, SPANS_MAX - count)]:
            body.append(draw_span(span, row, high, x, begin, end))
            count += 1
    marks = ticks(begin, end, 10)
    unit, factor = ("s", 1) if length >= 2 else ("ms", 1e3) if length >= 2e-3 else ("us", 1e6)
    for tick in marks:
        body.append(f'<path class="axis" d="M{x(tick):.1f} {base}v4"/>'
                    f'<text x="{x(tick):.1f}" y="{base + 17}" class="mid">'
                    f"{tick * factor:.7g}</text>")
    body.append(f'<text x="{LINE_WIDTH - 16}" y="{base + 34}" class="end label">{unit} since the '
                "start of the run</text>")
    return (f'<svg class="wide" viewBox="0 0 {LINE_WIDTH} {base + 40}" role="img" '
            f'aria-label="{escape(what)}">{"".join(body)}</svg>')
