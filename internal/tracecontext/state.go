package tracecontext

import (
	"slices"
	"strings"
)

// Limits of a tracestate.
const (
	// maxStateBytes is the maximum size that is propagated, which is the minimum
	// that the standard requires.
	maxStateBytes = 512
	// maxMembers is the maximum number of members.
	maxMembers = 32
	// maxMemberBytes is the maximum size of a key, and of a value.
	maxMemberBytes = 256
)

// cleanState returns a tracestate without white space around members and without
// empty members, or "" if it is too long or malformed.
func cleanState(text string) string {
	if len(text) > maxStateBytes {
		return ""
	}
	var members, keys []string
	for member := range strings.SplitSeq(text, ",") {
		member = strings.Trim(member, " \t")
		if member == "" {
			continue
		}
		key, value, ok := strings.Cut(member, "=")
		if !ok || !isKey(key) || !isValue(value) || slices.Contains(keys, key) || len(members) == maxMembers {
			return ""
		}
		members, keys = append(members, member), append(keys, key)
	}
	return strings.Join(members, ",")
}

func isKey(text string) bool {
	if text == "" || len(text) > maxMemberBytes || !isLetterOrDigit(rune(text[0])) {
		return false
	}
	return strings.TrimLeftFunc(text, func(r rune) bool { return isLetterOrDigit(r) || strings.ContainsRune("_-*/@", r) }) == ""
}

func isLetterOrDigit(r rune) bool { return 'a' <= r && r <= 'z' || '0' <= r && r <= '9' }

func isValue(text string) bool {
	if text == "" || len(text) > maxMemberBytes {
		return false
	}
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' || r == '=' })
}
