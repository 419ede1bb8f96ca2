package config

import (
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

// text returns the value in the notation of environment variables.
func (s Setting) text() string {
	if list, ok := s.value.Interface().([]string); ok {
		return strings.Join(list, ",")
	}
	return strings.Trim(s.Notation(), `"`)
}
