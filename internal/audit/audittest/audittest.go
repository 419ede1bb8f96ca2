// Package audittest checks audit logs in tests.
package audittest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/execwire/execwire/internal/audit"
)

// Read returns the records of a file, each of which must be valid by schema.json.
func Read(t testing.TB, path string) []audit.Record {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return Parse(t, text)
}

// Parse returns the records of a text, each of which must be valid by schema.json.
func Parse(t testing.TB, text []byte) []audit.Record {
	t.Helper()
	schema := loadSchema(t)
	var records []audit.Record
	for line := range bytes.Lines(text) {
		var value any
		var record audit.Record
		if err := errors.Join(decode(line, &value), json.Unmarshal(line, &record)); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if err := validate(schema, value); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		records = append(records, record)
	}
	return records
}

func decode(line []byte, value *any) error {
	if !bytes.HasSuffix(line, []byte("\n")) {
		return errors.New("there is no newline")
	}
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.UseNumber()
	return decoder.Decode(value)
}

func loadSchema(t testing.TB) map[string]any {
	t.Helper()
	var schema map[string]any
	if err := json.Unmarshal([]byte(audit.Schema), &schema); err != nil {
		t.Fatal(err)
	}
	return schema
}

// validate checks a value with the keywords of JSON Schema that schema.json uses. Another
// keyword is an error.
func validate(schema map[string]any, value any) error {
	condition, _ := schema["if"].(map[string]any)
	if consequence, ok := schema["then"].(map[string]any); ok && validate(condition, value) == nil {
		if err := validate(consequence, value); err != nil {
			return err
		}
	}
	for keyword, rule := range schema {
		if err := check(keyword, rule, schema, value); err != nil {
			return fmt.Errorf("%s: %w", keyword, err)
		}
	}
	return nil
}

func check(keyword string, rule any, schema map[string]any, value any) error {
	text, isText := value.(string)
	object, _ := value.(map[string]any)
	list, _ := value.([]any)
	switch keyword {
	case "$schema", "$id", "title", "description", "if", "then":
	case "type":
		if typeOf(value) != rule {
			return fmt.Errorf("%v is no %v", value, rule)
		}
	case "const":
		if fmt.Sprint(value) != fmt.Sprint(rule) {
			return fmt.Errorf("%v is not %v", value, rule)
		}
	case "enum":
		if !slices.Contains(rule.([]any), value) {
			return fmt.Errorf("%v is none of %v", value, rule)
		}
	case "pattern":
		if !isText || !regexp.MustCompile(rule.(string)).MatchString(text) {
			return fmt.Errorf("%v does not match %v", value, rule)
		}
	case "maxLength":
		if utf8.RuneCountInString(text) > int(rule.(float64)) {
			return fmt.Errorf("%d bytes are too long", len(text))
		}
	case "maxItems":
		if len(list) > int(rule.(float64)) {
			return fmt.Errorf("%d are too many", len(list))
		}
	case "minimum":
		if n, err := value.(json.Number).Int64(); err != nil || float64(n) < rule.(float64) {
			return fmt.Errorf("%v is too low", value)
		}
	case "required":
		for _, name := range rule.([]any) {
			if _, has := object[name.(string)]; !has {
				return fmt.Errorf("there is no %v", name)
			}
		}
	case "additionalProperties":
		for name := range object {
			if _, known := schema["properties"].(map[string]any)[name]; !known {
				return fmt.Errorf("%v is unknown", name)
			}
		}
	case "properties":
		for name, of := range rule.(map[string]any) {
			if member, has := object[name]; has {
				if err := validate(of.(map[string]any), member); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
			}
		}
	case "items":
		for _, item := range list {
			if err := validate(rule.(map[string]any), item); err != nil {
				return err
			}
		}
	case "allOf":
		for _, one := range rule.([]any) {
			if err := validate(one.(map[string]any), value); err != nil {
				return err
			}
		}
	default:
		return errors.New("this validator does not know the keyword")
	}
	return nil
}

func typeOf(value any) string {
	switch value := value.(type) {
	case string:
		return "string"
	case bool:
		return "boolean"
	case map[string]any:
		return "object"
	case []any:
		return "array"
	case json.Number:
		if _, err := value.Int64(); err == nil {
			return "integer"
		}
	}
	return "number"
}
