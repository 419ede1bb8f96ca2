// Package display formats what commands show to people.
package display

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable returns text as it is, or quoted if it has control characters, which affect a
// terminal, or is not UTF-8.
func Printable(text string) string {
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

// Bytes formats a number of bytes in units of 1024.
func Bytes(n int64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	value := float64(n)
	unit := 0
	for units := "KMGTPE"; value >= 1024 && unit < len(units); unit++ {
		value /= 1024
	}
	return fmt.Sprintf("%.1f %ciB", value, "KMGTPE"[unit-1])
}
