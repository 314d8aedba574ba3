"""page.py -- the page: numbers first, then learning, time, communication, settings.

Numbers stand in <data value="...">, exactly as the files have them. With several runs each keeps
its colour in every chart, and the first is what the others are compared with.
"""

import pkgutil

import draw
from draw import Series, escape, number, percent, seconds, size
from runs import is_count


def data(value, text):
    if value is None:
        return "&ndash;"
    return f'<data value="{value!r}">{escape(text(value))}</data>'


def whole(value):
    return f"{value:,.0f}".replace(",", "\u202f")


def ratio(value):
    return f"{value:.2f}\u00d7"


# ---- Figures ----

def figure(title, body, hint="", kind=""):
    if body is None:
        return ""
    small = f"<small>{escape(hint)}</small>" if hint else ""
    kind = f' class="{kind}"' if kind else ""
    return (f'<figure{kind}><figcaption>{escape(title)}{small}</figcaption>{body}'
            "</figure>")


def section(title, *figures, lead="", kind="grid2"):
    body = "".join(figures)
    if not body:
        return ""
    return f'<section><h2>{escape(title)}</h2>{lead}<div class="{kind}">{body}</div></section>'


def line_mark(colour, dots=False):
    path = '<path d="M0 5H20"/>' + ('<circle cx="10" cy="5" r="3"/>' if dots else "")
    kind = "dots" if dots else "line"
    return f'<svg viewBox="0 0 20 10" class="series s{colour} {kind}">{path}</svg>'


def legend(items):
    rows = "".join(f"<li>{mark}{text}</li>" for mark, text in items)
    return f'<ul class="legend">{rows}</ul>'


def run_legend(runs):
    if len(runs) == 1:
        return ""
    return legend((line_mark(index % draw.COLOURS), f"<b>{escape(run.name)}</b>")
                  for index, run in enumerate(runs))


def swatches(kinds):
    return legend((f'<svg viewBox="0 0 10 10"><rect class="k-{kind}" width="10" height="10"/>'
                   "</svg>", escape(text)) for kind, text in kinds)


def label(runs, run, text):
    return text if len(runs) == 1 else f"{run.name}, {text}" if text else run.name


def chart(runs, title, points_of, hint="", names=("",), **more):
    """points_of(run): for each name its points; the second is drawn as tests are, with dots."""
    all_series = []
    for index, run in enumerate(runs):
        for place, (points, name) in enumerate(zip(points_of(run), names)):
            colour = index if len(runs) > 1 else place
            style = more.get("style", "line") if place == 0 else "dots"
            all_series.append(Series(label(runs, run, name) or title, points, colour, style))
    x_label = more.pop("x_label")
    more.pop("style", None)
    return figure(title, draw.line_chart(all_series, title, x_label, **more), hint)


# ---- Sections ----

AXES = {"time": {"x_label": "seconds of training", "x_text": number},
        "samples": {"x_label": "samples", "x_text": number}}


def kinds_legend(runs):
    colours = (0, 1) if len(runs) == 1 else (7, 7)
    return legend([(line_mark(colours[0]), "training batches, since the line before"),
                   (line_mark(colours[1], True), "test set")])


def learning(runs):
    figures = []
    simulated = any(run.summary.get("simulated") for run in runs)
    for x, axis in AXES.items():
        over = "time" if x == "time" else "samples"
        figures.append(chart(
            runs, f"Loss over {over}",
            lambda run, x=x: (run.series(x, "loss"), run.tests(x, "test_loss")),
            names=("training", "test"), log=True, **axis))
    for x, axis in AXES.items():
        over = "time" if x == "time" else "samples"
        figures.append(chart(
            runs, f"Accuracy over {over}",
            lambda run, x=x: (run.series(x, "accuracy"), run.tests(x, "test_accuracy")),
            names=("training", "test"), y_text=percent, top=1.0, **axis))
    lead = run_legend(runs) + kinds_legend(runs)
    if simulated:
        lead += '<p class="hint">Seconds of a simulated run are virtual.</p>'
    return section("Learning", *figures, lead=lead)


def ranks_of(runs):
    figures = []
    found = [(run, run.per_rank()) for run in runs]
    rows = [row for _, parts in found if parts for row in parts]
    high = max(map(sum, rows), default=0)
    for run, parts in found:
        if parts:
            title = "Seconds of each rank" if len(runs) == 1 else run.name
            idle = run.value("idle_fraction")
            hint = "" if idle is None else f"{percent(idle)} of the time without computing"
            figures.append(figure(title, draw.columns(parts, title, high), hint))
    kinds = [part for index, part in enumerate(draw.PARTS) if any(row[index] > 0 for row in rows)]
    lead = swatches(kinds) if figures else ""
    figures.append(chart(
        runs, "Idle share over time",
        lambda run: [[(x, y / x) for x, y in run.series("time", "idle_time") if x > 0]],
        hint="of the time up to then: not computing, mean of the ranks",
        y_text=percent, zero=True, top=1.0, **AXES["time"]))
    return section("Where the time went", *figures, lead=run_legend(runs) + lead)


TRACED = (("compute", "gradient"), ("delay", "injected delay"),
          ("communication", "blocked in communication"), ("average", "averaging models"),
          ("reduction", "a reduction in flight"), ("pause", "test or report"))


def timelines(runs):
    windows = [run.window() for run in runs]
    lengths = [window[1] for window in windows if window]
    if not lengths:
        return ""
    figures, kinds = [], set()
    for run, window in zip(runs, windows):
        if not window:
            continue
        length = max(lengths) if max(lengths) < 4 * window[1] else window[1]
        begin = max(0.0, window[0] - (length - window[1]) / 2)
        body = draw.timeline(run.spans, begin, length, f"timeline of {run.name}")
        kinds |= {span.kind for spans in run.spans.values() for span in spans}
        ranks = len(run.spans)
        title = "" if len(runs) == 1 else f"{run.name}: "
        title += f"{seconds(length)} from {seconds(begin)} on"
        hint = f"{draw.RANKS_MAX} of {ranks} ranks" if ranks > draw.RANKS_MAX else ""
        figures.append(figure(title, f'<div class="scroll">{body}</div>', hint, "full"))
    moments = " A thin stroke is an update of the parameters." if "update" in kinds else ""
    lead = (swatches((kind, text) for kind, text in TRACED if kind in kinds)
            + f'<p class="hint">A row is a rank.{moments} The whole run is in '
            "<code>trace.json</code>: open it in Perfetto (ui.perfetto.dev; the file stays on your "
            "machine).</p>")
    return section("Timeline", *figures, lead=lead, kind="")


def mean(values):
    return sum(values) / len(values)


def rounds(run, value, how=mean):
    points = [(update.round, value(update)) for update in run.updates
              if value(update) is not None]
    return [draw.bins(points, how)]


def communication(runs):
    rounds_axis = {"x_label": "round", "x_text": number}
    return section(
        "Communication",
        chart(runs, "Global reductions", lambda run: [run.series("time", "reductions")],
              zero=True, **AXES["time"]),
        chart(runs, "Bytes handed to transports", lambda run: [run.series("time", "bytes")],
              hint="all ranks together; memory that ranks read in place is not sent",
              y_text=size, zero=True, **AXES["time"]),
        chart(runs, "Ranks in an update", lambda run: rounds(run, lambda u: u.contributors),
              hint="with a gradient of any age", zero=True, **rounds_axis),
        chart(runs, "Age of the gradients in an update",
              lambda run: rounds(run, lambda u: u.mean_age),
              hint="mean; local steps that the rank had computed since", zero=True, **rounds_axis),
        chart(runs, "Age of the oldest gradient in an update",
              lambda run: rounds(run, lambda u: u.age, max),
              hint="local steps that its rank had computed since", zero=True, **rounds_axis),
        chart(runs, "Steps between averages", lambda run: [periods(run)],
              hint="the period, over local steps", zero=True, style="steps",
              x_label="local step", x_text=number),
        chart(runs, "Learning rate", lambda run: [run.series("step", "learning_rate")],
              hint="over local steps", zero=True, x_label="local step", x_text=number),
        lead=run_legend(runs))


def periods(run):
    lines = [line for line in run.averages if line.get("scope") == "global"]
    points = sorted({(line["step"], line["period"]) for line in lines
                     if is_count(line.get("step")) and is_count(line.get("period"))})
    return points or run.series("step", "period")  # The ledger has each, metrics some.


# ---- Numbers ----

def final_note(run):
    rows = run.value("final_rows")
    return f"over {whole(rows)} training samples" if is_count(rows) and rows > 0 else ""


def tiles(run):
    rows = [
        ("test accuracy", "test_accuracy", percent, ""),
        ("test loss", "test_loss", number, ""),
        ("final training loss", "final_loss", number, final_note(run)),
        ("test perplexity", "test_perplexity", number, ""),
        ("time", "seconds", seconds, "virtual" if run.summary.get("simulated") else ""),
        ("samples a second", "samples_per_second", number, "all ranks"),
        ("idle", "idle_fraction", percent, "of the time, mean of the ranks"),
        ("blocked", "communication_seconds", seconds, "in communication, mean of the ranks"),
        ("global reductions", "global_reductions", whole, ""),
        ("local reductions", "local_reductions", whole, ""),
        ("sent", "bytes_sent", size, "all ranks"),
        ("contributors", "contributors_mean", number, "mean over rounds"),
        ("fresh", "fresh_mean", number, "mean over rounds"),
        ("greatest staleness", "staleness_max", whole, "rounds"),
    ]
    out = []
    for name, key, text, note in rows:
        value = run.value(key)
        if value is None or (key == "local_reductions" and value == 0):
            continue
        small = f"<small>{escape(note)}</small>" if note else ""
        out.append(f'<div data-key="{key}"><dt>{escape(name)}</dt><dd>{data(value, text)}{small}'
                   "</dd></div>")
    return f'<dl class="tiles">{"".join(out)}</dl>'


def common_goal(runs):
    """What every run reached on its way: (key, value, better) of the tests, or of the training loss
    where nothing was tested. None where tests came at the end alone: the time to what a run ends
    with is the time of the run."""
    tested = False
    for key, better, worse in (("test_accuracy", max, min), ("test_loss", min, max),
                               ("loss", min, max)):
        points = [reached(run, key) for run in runs]
        if key == "loss" and tested:
            return None
        tested = tested or any(points)
        if all(len(found) > 1 for found in points):
            return key, worse(better(y for _, y in found) for found in points), better
    return None


def reached(run, key):
    return run.series("time", key) if key == "loss" else run.tests("time", key)


def time_to(run, goal):
    key, value, better = goal
    return min((x for x, y in reached(run, key) if better(y, value) == y), default=None)


def goal_columns(runs, goal):
    if goal is None:
        return []
    name = {"test_accuracy": "accuracy", "test_loss": "test loss", "loss": "loss"}[goal[0]]
    text = percent(goal[1]) if goal[0] == "test_accuracy" else number(goal[1])
    return [(f"time to {name} {text}", lambda run: time_to(run, goal), seconds, min),
            ("speed-up to it", lambda run: faster(runs[0], run, goal), ratio, None)]


def tables(runs):
    """What runs came to, and what that took: one table of all would be wider than a page."""
    goal = common_goal(runs)
    came_to = [
        ("time", lambda run: run.value("seconds"), seconds, min),
        ("samples a second", lambda run: run.value("samples_per_second"), number, max),
        ("speed-up", lambda run: speed_up(run, runs[0]), ratio, None),
        ("test accuracy", lambda run: run.value("test_accuracy"), percent, max),
        ("test loss", lambda run: run.value("test_loss"), number, min),
        ("test perplexity", lambda run: run.value("test_perplexity"), number, min),
        ("final training loss", lambda run: run.value("final_loss"), number, min),
        *goal_columns(runs, goal),
    ]
    took = [
        ("ranks", lambda run: run.value("ranks"), whole, None),
        ("idle", lambda run: run.value("idle_fraction"), percent, min),
        ("blocked", lambda run: run.value("communication_seconds"), seconds, min),
        ("global reductions", lambda run: run.value("global_reductions"), whole, None),
        ("sent", lambda run: run.value("bytes_sent"), size, min),
        ("contributors", lambda run: run.value("contributors_mean"), number, None),
        ("fresh", lambda run: run.value("fresh_mean"), number, None),
        ("greatest staleness", lambda run: run.value("staleness_max"), whole, None),
    ]
    if len({run.value("ranks") for run in runs}) == 1:
        del took[0]
    hint = ("Speed-up: relative to the first run, by samples a second"
            + (", and by the time to what every run reached" if goal else "") + ". Bold: the best.")
    if goal is None and any(reached(run, key) for run in runs
                            for key in ("test_accuracy", "test_loss")):
        hint += " The time to an accuracy is told where runs test on the way (--eval-every)."
    return table(runs, came_to) + table(runs, took) + f'<p class="hint">{hint}</p>'


def table(runs, columns):
    columns = [column for column in columns if any(column[1](run) is not None for run in runs)]
    if not columns:
        return ""
    head = "".join(f"<th>{escape(name)}</th>" for name, *_ in columns)
    body = []
    for index, run in enumerate(runs):
        cells = "".join(cell(run, runs, column) for column in columns)
        body.append(f"<tr><th>{line_mark(index % draw.COLOURS)}{escape(run.name)}</th>{cells}"
                    "</tr>")
    return ('<div class="scroll"><table class="numbers"><thead><tr><th>run</th>'
            f'{head}</tr></thead><tbody>{"".join(body)}</tbody></table></div>')


def cell(run, runs, column):
    _, value_of, text, best = column
    value = value_of(run)
    every = [other for other in map(value_of, runs) if other is not None]
    seen = set(map(text, every))  # As people see them: no winner among equals.
    mark = best and value is not None and len(seen) > 1 and text(value) == text(best(every))
    kind = ' class="best"' if mark else ""
    return f"<td{kind}>{data(value, text)}</td>"


def speed_up(run, first):
    mine, base = run.value("samples_per_second"), first.value("samples_per_second")
    return mine / base if mine is not None and base else None


def faster(first, run, goal):
    base, mine = time_to(first, goal), time_to(run, goal)
    return base / mine if base is not None and mine else None


def setting_text(value):
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return whole(value) if isinstance(value, int) and abs(value) >= 10000 else str(value)


def settings(runs):
    every = [run.settings() for run in runs]
    keys = list(dict.fromkeys(key for found in every for key in found))
    first = [key for key in ("algorithm", "model", "data", "ranks", "batch") if key in keys]
    rows = []
    for key in first + [key for key in keys if key not in first]:
        values = [found.get(key) for found in every]
        texts = ["&ndash;" if value is None else escape(setting_text(value)) for value in values]
        kind = ' class="differs"' if len(set(texts)) > 1 else ""
        rows.append(f"<tr{kind}><th>{escape(key)}</th>"
                    + "".join(f"<td>{text}</td>" for text in texts) + "</tr>")
    if not rows:
        return ""
    head = "".join(f"<th>{escape(run.name)}</th>" for run in runs)
    head = f"<thead><tr><th></th>{head}</tr></thead>" if len(runs) > 1 else ""
    return ('<section><h2>Settings</h2><div class="scroll"><table class="words">'
            f'{head}<tbody>{"".join(rows)}</tbody></table></div></section>')


# ---- The page ----

def sentence(run):
    parts = [run.text("algorithm"), run.text("model") and f'{run.text("model")}'
             + (f' on {run.text("data")}' if run.text("data") else "")]
    ranks = run.value("ranks")
    if ranks is not None:
        parts.append(f"{ranks} rank{'' if ranks == 1 else 's'}")
    if run.value("samples") is not None:
        parts.append(f'{whole(run.value("samples"))} samples')
    text = escape(", ".join(part for part in parts if part))
    badge = ' <span class="badge">simulated</span>' if run.summary.get("simulated") else ""
    return f'<p class="lead">{text}{badge}</p>'


def problems(runs):
    rows = [(run, text) for run in runs for text in run.problems]
    if not rows:
        return ""
    items = "".join(f"<li>{escape(run.name)}: {escape(text)}</li>" for run, text in rows)
    return f'<div class="problems">Not everything could be shown.<ul>{items}</ul></div>'


def make(runs):
    title = runs[0].name if len(runs) == 1 else f"{len(runs)} runs"
    head = sentence(runs[0]) + problems(runs) + tiles(runs[0])
    if len(runs) > 1:
        head = problems(runs) + tables(runs)
    style = pkgutil.get_data("page", "style.css").decode()
    script = pkgutil.get_data("page", "hover.js").decode()
    body = (learning(runs) + ranks_of(runs) + timelines(runs) + communication(runs)
            + settings(runs))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)} - Rubato</title>
<style>
{style}</style>
</head>
<body>
<main>
<h1>{escape(title)}</h1>
{head}
{body}
</main>
<div id="tip"></div>
<script>
{script}</script>
</body>
</html>
"""
