// Show the jobs that all lists and sliders let pass, over the chosen axes, with lines of medians.
const n = source.length ?? source.get_length()
const keep = new Array(n).fill(true)
for (const [name, widget] of Object.entries(widgets)) {
  if (widget.value == "all") continue
  const values = source.data[name]
  const texts = source.data["text " + name]
  for (let i = 0; i < n; i++) {
    if (texts == null)
      keep[i] &&= values[i] >= widget.value[0] && values[i] <= widget.value[1]
    else
      keep[i] &&= texts[i] == widget.value
  }
}
filter.booleans = keep

// All glyphs of the marks, selected or not, show these two columns.
const x = source.data[axes.x.value]
const y = source.data[axes.y.value]
source.data["shown x"] = x
source.data["shown y"] = y
for (const side of ["x", "y"])
  lines_of_axes[side].axis_label = labels[axes[side].value]

// A line joins the medians over the seeds of the jobs that differ in nothing but x.
const drawn = { xs: [], ys: [], color: [] }
if (options.includes(axes.x.value)) {
  const groups = new Map()
  const others = options.concat(texts).filter(name => name != axes.x.value)
  for (let i = 0; i < n; i++) {
    if (!keep[i] || !Number.isFinite(x[i]) || !Number.isFinite(y[i])) continue
    const key = JSON.stringify(others.map(name => String(source.data[name][i])))
    if (!groups.has(key)) groups.set(key, { color: source.data["color"][i], at: new Map() })
    const { at } = groups.get(key)
    if (!at.has(x[i])) at.set(x[i], [])
    at.get(x[i]).push(y[i])
  }
  const median = values => {
    const sorted = [...values].sort((a, b) => a - b)
    const half = sorted.length >> 1
    return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2
  }
  for (const { color, at } of groups.values()) {
    const places = [...at.keys()].sort((a, b) => a - b)
    drawn.xs.push(places)
    drawn.ys.push(places.map(place => median(at.get(place))))
    drawn.color.push(color)
  }
}
lines.data = drawn
source.change.emit()
