package client

import (
	"strings"
	"testing"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// Sizes have no seq, and go to OnEvent alone.
func TestFollow_Resizes(t *testing.T) {
	size := &execwirev1.ProcessEvent{Event: &execwirev1.ProcessEvent_Resized{Resized: &execwirev1.TerminalResized{Rows: 24, Columns: 80}}}
	sizes := 0
	for name, onEvent := range map[string]func(*execwirev1.ProcessEvent) error{
		"without OnEvent": nil,
		"with OnEvent": func(e *execwirev1.ProcessEvent) error {
			if e.GetResized() != nil {
				sizes++
			}
			return nil
		},
	} {
		var out strings.Builder
		f := &follower{options: FollowOptions{Resizes: true, OnEvent: onEvent}, events: newEventWriter(RunOptions{Stdout: &out})}
		err := f.take([]*execwirev1.ProcessEvent{size, stdout(1, 0, "a"), size, size, stdout(2, 1, "b")})
		if err != nil || out.String() != "ab" {
			t.Errorf("%s: %q, %v", name, out.String(), err)
		}
	}
	if sizes != 3 {
		t.Errorf("%d sizes", sizes)
	}
}
