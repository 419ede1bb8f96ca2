package call

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// The error of a watch above the limit names the setting and the retry delay.
func TestWatchLimit_NamesTheSettingAndWhenToRetry(t *testing.T) {
	const setting = "watches_per_connection"
	w := NewWatches(nil, 1)
	_, _ = w.reserve("1")
	_, refused := w.reserve("2")
	data := refused.Data.(map[string]any)
	if data["setting"] != setting || !strings.Contains(refused.Message, setting) || data["retryAfterMs"] != int64(1000) {
		t.Errorf("%+v", refused)
	}
}

// FuzzWatchID: an accepted id encodes to JSON that is accepted as the same id.
func FuzzWatchID(f *testing.F) {
	for _, seed := range []string{"1", `"a"`, `"\u0061"`, "-1", "1.5", "null", `"\ud800"`, " 7 "} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		id, failed := parseWatchID(json.RawMessage(raw))
		if failed != nil {
			return
		}
		again, failed := parseWatchID(json.RawMessage(id))
		if failed != nil && len(id) <= maxWatchIDBytes || failed == nil && again != id {
			t.Error(errors.New("the id "+string(id)), again, failed)
		}
	})
}
