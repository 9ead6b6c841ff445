// Keep the rows that all lists and sliders let pass.
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
