package tracecontext

import (
	"strings"
	"testing"
)

const (
	trace  = "0af7651916cd43dd8448eb211c80319c"
	span   = "b7ad6b7169203331"
	parent = "00-" + trace + "-" + span + "-01"
)

func TestParse_Parent(t *testing.T) {
	for text, want := range map[string]string{
		parent:                              parent,
		" " + parent + "\t":                 parent,
		"00-" + trace + "-" + span + "-ff":  "00-" + trace + "-" + span + "-ff",
		"01" + parent[2:]:                   parent,
		"cc" + parent[2:] + "-what is this": parent,
	} {
		got := Parse(text, "")
		if got.Parent() != want || got.TraceID() != trace || got.SpanID() != span || got.IsZero() {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
}

func TestParse_InvalidParent_IsDropped(t *testing.T) {
	for _, text := range []string{
		"", "x", parent[:54], parent + "-", parent + "0", "ff" + parent[2:], "0g" + parent[2:], "cc" + parent[2:] + "0",
		"00-" + strings.Repeat("0", 32) + "-" + span + "-01", "00-" + trace + "-" + strings.Repeat("0", 16) + "-01",
		strings.ToUpper(parent), strings.Replace(parent, "-", "_", 1), strings.Replace(parent, "0af7", "0\x00f7", 1),
		strings.Replace(parent, "0af7", "0é7", 1), "00-" + trace + "-" + span + "-0x", parent + "\n", parent + parent,
		strings.Repeat("0", 1<<20), "cc" + strings.Repeat("-", 1<<20),
	} {
		if got := Parse(text, "vendor=1"); got != (Context{}) || got.TraceID() != "" || got.SpanID() != "" || !got.IsZero() {
			t.Errorf("%.80q is read as %+v", text, got)
		}
	}
}

func TestParse_State_IsCleaned(t *testing.T) {
	long := "k=" + strings.Repeat("v", 256)
	for text, want := range map[string]string{
		"":                                     "",
		"a=1":                                  "a=1",
		" a=1\t,, b@c=x y ,":                   "a=1,b@c=x y",
		"0tenant@sys=!-~,_":                    "",
		long:                                   long,
		long + "v":                             "",
		"a=1,a=2":                              "",
		"A=1":                                  "",
		"_a=1":                                 "",
		"a":                                    "",
		"a=":                                   "",
		"=1":                                   "",
		"a=b=c":                                "",
		"a=\x00":                               "",
		"a=1\r\nevil: yes":                     "",
		"a=é":                                  "",
		strings.Repeat("k", 257) + "=1":        "",
		strings.Repeat(" ", 512) + "a=1":       "",
		"a=" + strings.Repeat("x", 1<<20):      "",
		"b=" + strings.Repeat("x", 255) + "  ": "b=" + strings.Repeat("x", 255),
	} {
		if got := Parse(parent, text); got.State() != want || got.Parent() != parent {
			t.Errorf("%.80q is read as %+v, want %q", text, got, want)
		}
	}
}

func TestParse_State_MemberLimit(t *testing.T) {
	var members []string
	for i := range 33 {
		members = append(members, strings.Repeat("k", i/8+1)+string(rune('a'+i%8))+"=1")
	}
	if most := strings.Join(members[:32], ","); Parse(parent, most).State() != most {
		t.Error("32 members are too many")
	}
	if got := Parse(parent, strings.Join(members, ",")).State(); got != "" {
		t.Errorf("33 members are read as %q", got)
	}
}
