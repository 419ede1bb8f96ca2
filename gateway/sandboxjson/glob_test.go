package sandboxjson

import (
	"strings"
	"testing"
)

func TestExpandGlob(t *testing.T) {
	for pattern, want := range map[string]string{
		"/a/*.env":                             "/a/*.env",
		"./a/**":                               "a/**",
		"/a/[!b-d]?":                           "/a/[^b-d]?",
		"/a/[^b]":                              "/a/[^b]",
		"/a/{b,c/d}/*":                         "/a/b/* /a/c/d/*",
		"/{a,b{c,d}}":                          "/a /bc /bd",
		"/a{,.bak}":                            "/a /a.bak",
		`/a\{b\}[{,}]`:                         `/a\{b\}[{,}]`,
		"":                                     "",
		"/a/../b":                              "",
		"/a/./b":                               "",
		"/a/{b":                                "",
		"/a/b}":                                "",
		"/a/{b,../c}":                          "",
		"/a/[b":                                "",
		"/a/[]b]":                              "",
		"/a/[b/c]":                             "",
		`/a/[\]]`:                              "",
		"/a/[!-b]":                             "",
		`/a\`:                                  "",
		`/a\/b`:                                "",
		"/a\x00":                               "",
		"FILE:///a/*":                          "",
		"/{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}": "",
	} {
		got, problem := expandGlob(pattern)
		if strings.Join(got, " ") != want || (problem == "") != (want != "") {
			t.Errorf("%q expands to %q, %q; want %q", pattern, got, problem, want)
		}
	}
}
