package conformance

import (
	"os"
	"strings"
	"time"
)

// The scripts of the scenarios about files.
func init() {
	scripts["08_path_forms"] = script{prepare: func(r *replay) {
		r.makeFile("f", "data", 0o644)
		r.makeFile("sp ace%41", "data", 0o644)
	}}
	scripts["08_getMetadata"] = script{
		prepare: func(r *replay) {
			r.makeFile("f", "12345", 0o644)
			r.makeDir("d")
			r.makeLink("f", "lf")
			r.makeLink("d", "ld")
			r.makeLink("nowhere", "dang")
			r.makeLink("loop", "loop")
			r.makeFIFO("fifo")
			r.makeFile("noperm", "data", 0)
		},
		before: func(r *replay, index int, _ string) {
			switch index {
			case 19:
				r.must(os.Chtimes(r.path("f"), time.Unix(1, 0), time.UnixMilli(1500)))
			case 20:
				r.must(os.Chtimes(r.path("f"), time.Unix(-5, 0), time.Unix(-5, 0)))
			}
		},
	}
	scripts["08_readFile"] = script{prepare: func(r *replay) {
		r.makeFile("f", "\x00\xff text", 0o644)
		r.makeFile("empty", "", 0o644)
		r.makeDir("d")
		r.makeLink("f", "lf")
		r.makeLink("nowhere", "dang")
		r.makeLink("d", "ld")
	}}
	scripts["08_readFile_fifo"] = script{prepare: func(r *replay) { r.makeFIFO("fifo") }}
	scripts["08_writeFile"] = script{prepare: func(r *replay) {
		r.makeFile("f", "long old contents", 0o640)
		r.makeFile("ro", "old", 0o444)
		r.makeDir("d")
		r.makeLink("f", "lf")
		r.makeLink("made", "dang")
		r.makeFile("hard1", "h", 0o644)
		r.must(os.Link(r.path("hard1"), r.path("hard2")))
	}}
	scripts["08_createDirectory"] = script{prepare: func(r *replay) {
		r.makeFile("f", "data", 0o644)
		r.makeLink("nowhere", "dang")
	}}
	scripts["08_readDirectory"] = script{prepare: (*replay).makeListing}
	scripts["08_remove"] = script{before: func(r *replay, index int, _ string) {
		if index%9 == 0 && index <= 54 {
			r.makeDoomed()
		}
	}}
	scripts["08_copy"] = script{
		prepare: (*replay).makeSources,
		before: func(r *replay, _ int, text string) {
			if strings.Contains(text, "/d3") {
				r.makeFIFO("d/infifo")
			}
		},
	}
	scripts["08_new_methods"] = script{prepare: func(r *replay) {
		r.makeFile("f", "0123456789", 0o644)
		r.makeDir("d/sub")
		r.makeFile("d/a", "data", 0o644)
		r.makeFile("d/.h", "data", 0o644)
		r.makeDir("d/.hid")
		r.makeFile("d/.hid/x", "data", 0o644)
		r.makeFile("d/sub/b", "data", 0o644)
		r.makeLink("../f", "d/lf")
		r.makeLink("sub", "d/ld")
		r.makeLink("none", "d/dang")
	}}
}

func (r *replay) makeListing() {
	r.Helper()
	r.makeDir("d/sub")
	for _, name := range []string{"zeta", "alpha", "Beta", ".hidden", "10", "9", "é", "sub/inner", "bad\xff"} {
		r.makeFile("d/"+name, "data", 0o644)
	}
	r.makeLink("alpha", "d/lf")
	r.makeLink("sub", "d/ld")
	r.makeLink("nowhere", "d/dang")
	r.makeFIFO("d/fifo")
	r.makeDir("e")
	r.makeLink("d", "ldir")
	r.makeFile("f", "data", 0o644)
}

// makeDoomed creates the files that 08_remove removes, in every round.
func (r *replay) makeDoomed() {
	r.Helper()
	r.must(os.RemoveAll(r.path("r")))
	r.makeDir("r/d/sub")
	r.makeFile("r/f", "data", 0o644)
	r.makeFile("r/d/sub/x", "data", 0o644)
	r.makeDir("r/e")
	r.makeLink("d", "r/ld")
	r.makeLink("nowhere", "r/dang")
	r.makeFile("r/ro", "data", 0o444)
}

func (r *replay) makeSources() {
	r.Helper()
	r.makeFile("f", "src", 0o750)
	r.makeFile("g", "older and longer", 0o600)
	r.makeDir("d/sub")
	r.makeFile("d/a", "a", 0o755)
	r.makeFile("d/sub/b", "data", 0o644)
	r.makeLink("a", "d/la")
	r.makeLink("nowhere", "d/dang")
	r.makeLink("sub", "d/lsub")
	r.makeLink("f", "lf")
	r.makeLink("d", "ld")
	r.makeLink("nowhere", "dang")
	r.makeFIFO("fifo")
	r.must(os.Chmod(r.path("d/sub"), 0o700))
	r.makeDir("exist")
	r.makeFile("exist/keep", "data", 0o644)
}
