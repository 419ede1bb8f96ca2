// Package owners finds the names of users and groups of a server.
package owners

import (
	"context"
	"strconv"
	"strings"
)

// Names are names by number. The zero value knows none.
type Names struct {
	users, groups map[string]string
}

// Read reads the names from the files of the server, with read as its call for a whole file.
// Names that are not in /etc/passwd and /etc/group, or all if these cannot be read, stay
// unknown.
func Read(ctx context.Context, read func(ctx context.Context, path string) ([]byte, error)) Names {
	return Names{users: table(ctx, read, "/etc/passwd"), groups: table(ctx, read, "/etc/group")}
}

func table(ctx context.Context, read func(context.Context, string) ([]byte, error), path string) map[string]string {
	text, err := read(ctx, path)
	if err != nil {
		return nil
	}
	names := map[string]string{}
	for line := range strings.Lines(string(text)) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		if len(fields) < 3 || fields[0] == "" {
			continue
		}
		if _, isKnown := names[fields[2]]; !isKnown { // the first counts, as for getpwuid
			names[fields[2]] = fields[0]
		}
	}
	return names
}

// User returns the name of a user, or the number.
func (n Names) User(id uint32) string { return nameOf(n.users, id) }

// Group returns the name of a group, or the number.
func (n Names) Group(id uint32) string { return nameOf(n.groups, id) }

func nameOf(names map[string]string, id uint32) string {
	number := strconv.FormatUint(uint64(id), 10)
	if name := names[number]; name != "" {
		return name
	}
	return number
}
