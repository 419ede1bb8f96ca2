package config

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/BurntSushi/toml"
)

// Notation returns the value of the setting as a file has it: a text or a list in quotes,
// or a number. It is the default for a setting of [Settings] and [HubSettings], and the
// effective value for one of [Values].
func (s Setting) Notation() string {
	// Marshal fails for types that it does not know, which these are not.
	line, err := toml.Marshal(map[string]any{"value": s.Value()})
	if err != nil {
		panic("config: value of " + s.Name + ": " + err.Error())
	}
	return strings.TrimPrefix(string(bytes.TrimSpace(line)), "value = ")
}

// Value returns the value that Notation formats: a string, []string that is not nil, or
// int64.
func (s Setting) Value() any {
	switch v := s.value.Interface().(type) {
	case []string:
		return append([]string{}, v...)
	case string:
		return v
	case Duration:
		return v.String()
	case Bytes:
		if text := v.String(); text != strconv.FormatInt(int64(v), 10) {
			return text
		}
	}
	return s.value.Int()
}

// ParseDuration parses a duration as flags and settings have it: with units, as in
// "1h30m", or a number of seconds, as in "30".
func ParseDuration(text string) (time.Duration, error) {
	withUnit := text
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		withUnit += "s"
	}
	d, err := time.ParseDuration(withUnit)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration; write for example 30s, 1h30m, or a number of seconds", text)
	}
	return d, nil
}

// String formats the duration without parts that are 0, as in "1h30m".
func (d Duration) String() string {
	text := time.Duration(d).String()
	for _, zero := range []struct{ unit, part string }{{"m", "0s"}, {"h", "0m"}} {
		if short, ok := strings.CutSuffix(text, zero.unit+zero.part); ok {
			text = short + zero.unit
		}
	}
	return text
}

// exampleWidth is the width of the comments of an example.
const exampleWidth = 80

// Example returns a file for a program with each of its settings: what it does, its unit
// or range, and a comment with its default. Only comments of this kind have no space after
// their #. Without it they have no effect either.
func Example(program string, settings []Setting) string {
	var b strings.Builder
	comment(&b, "Settings of "+program+". Each comment without a space after its # is a setting with its default: remove the # and change the value. Environment variables ("+
		settings[0].prefix+" and the name in upper case) and flags override this file.")
	for _, s := range settings {
		b.WriteByte('\n')
		comment(&b, s.Help)
		facts := "Unit: " + s.Unit + "."
		if s.Min != "" {
			facts += " Range: " + s.Min + " to " + s.Max + "."
		}
		comment(&b, facts)
		fmt.Fprintf(&b, "#%s = %s\n", s.Name, s.Notation())
	}
	return b.String()
}

// comment writes text in lines of a comment.
func comment(b *strings.Builder, text string) {
	line := "#"
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > exampleWidth && line != "#" {
			b.WriteString(line + "\n")
			line = "#"
		}
		line += " " + word
	}
	b.WriteString(line + "\n")
}
