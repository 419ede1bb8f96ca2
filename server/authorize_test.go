package server

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// The table of permissions in docs/security.md is the one that decides.
func TestPermissionsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "| permission | calls |\n| --- | --- |\n")
	body, _, _ := strings.Cut(rest, "\n\n")
	documented := map[string][]string{}
	for line := range strings.SplitSeq(body, "\n") {
		cells := strings.Split(strings.ReplaceAll(line, "`", ""), "|")
		documented[strings.TrimSpace(cells[1])] = strings.Split(strings.TrimSpace(cells[2]), ", ")
	}
	want := map[string][]string{}
	for method, need := range needs {
		if need.permission == 0 {
			continue
		}
		name := need.permission.String()
		want[name] = append(want[name], method[strings.LastIndexByte(method, '/')+1:])
	}
	if len(documented) != len(want) {
		t.Errorf("documented are %v, want %v", documented, want)
	}
	for permission, calls := range want {
		slices.Sort(calls)
		if !slices.Equal(documented[permission], calls) {
			t.Errorf("%s: documented are %v, want %v", permission, documented[permission], calls)
		}
	}
}

func TestEveryCallNeedsOneThing(t *testing.T) {
	for method, need := range needs {
		if need.open && (need.permission != 0 || need.local) {
			t.Errorf("%s is anybody's and needs %v", method, need)
		}
		if need.permission != 0 && strings.Contains(need.permission.String(), ",") {
			t.Errorf("%s needs more than one permission: %v", method, need.permission)
		}
	}
}
