package screen

import "slices"

const tabWidth = 8

// tabStops are the tab stops by column; nil: every 8.
type tabStops []bool

func (t tabStops) isSet(x int) bool {
	if t == nil {
		return x%tabWidth == 0
	}
	return t[x]
}

// set sets or clears one of the tab stops of that many columns.
func (t *tabStops) set(x, columns int, stop bool) {
	if *t == nil {
		*t = make([]bool, columns)
		for at := 0; at < columns; at += tabWidth {
			(*t)[at] = true
		}
	}
	(*t)[x] = stop
}

func (t *tabStops) resize(columns int) {
	if *t == nil {
		return
	}
	for x := len(*t); x < columns; x++ {
		*t = append(*t, x%tabWidth == 0)
	}
	*t = slices.Clip((*t)[:columns])
}
