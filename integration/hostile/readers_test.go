package hostile

import (
	"bytes"
	"fmt"
	"github.com/execwire/execwire/integration/harness"
	"os"
	"path/filepath"
	"time"
)

// readingAttacks do not read what they requested.
var readingAttacks = []attack{
	{name: "unread output", wave: func(a *attackWave) {
		a.together(a.times(20), func(int) {
			if r, ok := a.settled(); ok {
				a.starts(r, harness.Program("flood", "-bytes", fmt.Sprint(uint64(1)<<40))...)
			}
		})
	}},
	{name: "unread answers", most: 600, settings: []string{"EXECWIRE_ANSWER_BYTES_TOTAL=16MiB"}, wave: func(a *attackWave) {
		file := filepath.Join(a.TempDir(), "large")
		if err := os.WriteFile(file, make([]byte, 2<<20), 0o600); err != nil {
			a.Errorf("failed to prepare: %v", err)
			return
		}
		text := fmt.Sprintf(`{"id":1,"method":"fs/readFile","params":{"path":%q}}`, file)
		frames := bytes.Repeat(maskedFrame(0x80|harness.OpText, []byte(text)), 500)
		a.together(a.times(50), func(int) {
			if r, ok := a.settled(); ok {
				if err := r.Raw(frames); err != nil {
					a.Errorf("failed to ask: %v", err)
				}
			}
		})
	}},
	{name: "unread refusals", most: 300, wave: func(a *attackWave) {
		frames := bytes.Repeat(maskedFrame(0x80|harness.OpText, []byte(`{"id":1,"method":"no/such"}`)), 1000)
		a.together(a.times(10), func(int) {
			r, ok := a.settled()
			if !ok {
				return
			}
			for deadline := time.Now().Add(harness.StepTimeout); r.Raw(frames) == nil; {
				if time.Now().After(deadline) {
					a.Error("a client that reads nothing may go on asking")
					return
				}
			}
		})
	}},
	{name: "unread listings", wave: func(a *attackWave) {
		dir := a.TempDir()
		for i := range 2000 {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%0200d", i)), nil, 0o600); err != nil {
				a.Errorf("failed to prepare: %v", err)
				return
			}
		}
		text := fmt.Sprintf(`{"id":1,"method":"fs/readDirectory","params":{"path":%q}}`, dir)
		frames := bytes.Repeat(maskedFrame(0x80|harness.OpText, []byte(text)), 1000)
		a.together(a.times(10), func(int) {
			if r, ok := a.settled(); ok {
				if err := r.Raw(frames); err != nil {
					a.Errorf("failed to ask: %v", err)
				}
			}
		})
	}},
}
