// rows that all lists and sliders let pass
const n = source.length ?? source.get_length()
const keep = new Array(n).fill(true)
for (const [name, widget] of Object.entries(widgets)) {
  const values = source.data[name], texts = source.data["text " + name]
  if (widget.value == "all") continue
  for (let i = 0; i < n; i++)
    keep[i] &&= texts == null ? values[i] >= widget.value[0] && values[i] <= widget.value[1] : texts[i] == widget.value
}
filter.booleans = keep
