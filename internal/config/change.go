package config

import (
	"context"
	"log/slog"
	"reflect"
	"strings"
)

// Change is a setting whose value in a running program differs from that of a
// configuration which was read again.
type Change struct {
	// Setting is the name of the setting.
	Setting string
	// Old is the value in the program, and New that of the configuration, in the notation of
	// environment variables. Both are empty for a secret.
	Old, New string
	// Reload is set if a running program can change to the new value.
	Reload bool
}

// Changes returns the settings in which two *Config or two *Hub differ, in the order of the
// documentation.
func Changes(from, to any) (changes []Change) {
	list := Values(to)
	for i, old := range Values(from) {
		if reflect.DeepEqual(old.Value(), list[i].Value()) {
			continue
		}
		change := Change{Setting: old.Name, Reload: old.Reload}
		if !old.Secret {
			change.Old, change.New = old.text(), list[i].text()
		}
		changes = append(changes, change)
	}
	return changes
}

// Apply sets the settings of a *Config or *Hub that a running program can change to the
// values of another.
func Apply(to, from any) {
	list := Values(from)
	for i, s := range Values(to) {
		if s.Reload {
			s.value.Set(list[i].value)
		}
	}
}

// LogChanges logs what a program has changed after it has read its configuration again.
func LogChanges(logger *slog.Logger, changes []Change) {
	for _, c := range changes {
		level, text := slog.LevelInfo, "changed a setting"
		if !c.Reload {
			level, text = slog.LevelWarn, "a changed setting needs a restart"
		}
		logger.Log(context.Background(), level, text, "setting", c.Setting, "old", c.Old, "new", c.New)
	}
	logger.Info("reloaded the configuration")
}

// text returns the value in the notation of environment variables.
func (s Setting) text() string {
	if list, ok := s.value.Interface().([]string); ok {
		return strings.Join(list, ",")
	}
	return strings.Trim(s.Notation(), `"`)
}
