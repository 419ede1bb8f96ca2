package auth

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// checkKeys refuses a key that is none of the table's exactly as it is written. The decoder ignores case: of two
// spellings of the same key, which it takes differs from one reading to the next.
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
			return &TableError{File: r.file, Problem: fmt.Sprintf("%s is not a key of it", key[:i+1]), Fix: fix}
		}
	}
	return nil
}

// keyNames returns the keys of a table of that type, and the type of each.
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
