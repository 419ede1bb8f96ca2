package auth

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// checkKeys rejects keys that are not exactly those of the table. The TOML
// decoder ignores case, and of two spellings of a key it takes either.
func (r *tableReader) checkKeys(keys []toml.Key) error {
	for _, key := range keys {
		at, known := reflect.TypeFor[document](), true
		for i, name := range key {
			names := keyNames(at)
			if at, known = names[name]; known {
				continue
			}
			fix := "docs/security.md lists them"
			for right := range names {
				if strings.EqualFold(right, name) {
					fix = "write " + toml.Key(append(slices.Clone(key[:i]), right)).String()
				}
			}
			return &TableError{File: r.file, Problem: fmt.Sprintf("unknown key %s", key[:i+1]), Fix: fix}
		}
	}
	return nil
}

// keyNames returns the keys of a TOML table of that type, and their types.
func keyNames(table reflect.Type) map[string]reflect.Type {
	for table.Kind() == reflect.Pointer || table.Kind() == reflect.Slice {
		table = table.Elem()
	}
	names := map[string]reflect.Type{}
	if table.Kind() != reflect.Struct {
		return names
	}
	for field := range table.NumField() {
		names[table.Field(field).Tag.Get("toml")] = table.Field(field).Type
	}
	return names
}
