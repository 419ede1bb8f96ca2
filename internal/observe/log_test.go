package observe

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestNewLogger_FormatAndLevel(t *testing.T) {
	var out strings.Builder
	logger, err := NewLogger(&out, "json", "warn", DefaultLines)
	if err != nil {
		t.Fatal(err)
	}
	logger.Info("quiet")
	logger.Warn("loud", "process_id", "p1")
	var line map[string]any
	if err := json.Unmarshal([]byte(out.String()), &line); err != nil {
		t.Fatalf("not one JSON object: %q: %v", out.String(), err)
	}
	if line["msg"] != "loud" || line["process_id"] != "p1" {
		t.Errorf("logged %v", line)
	}
}

func TestNewLogger_UnknownName_Fails(t *testing.T) {
	if _, err := NewLogger(nil, "xml", "info", DefaultLines); err == nil || !strings.Contains(err.Error(), "text or json") {
		t.Errorf("format: %v", err)
	}
	if _, err := NewLogger(nil, "text", "loud", DefaultLines); err == nil || !strings.Contains(err.Error(), "debug, info") {
		t.Errorf("level: %v", err)
	}
}
