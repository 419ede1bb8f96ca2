package auth

import (
	"fmt"
	"slices"

	"github.com/execwire/execwire/internal/osuser"
)

// RunAs is the users as whom a caller may start processes. That of this process always is one. The
// zero value has no others.
type RunAs struct {
	everybody bool
	users     []osuser.User
}

// Anybody allows all users.
var Anybody = RunAs{everybody: true}

// parseRunAs parses the key run_as. The users are looked up once.
func parseRunAs(list []string) (r RunAs, err error) {
	for _, text := range list {
		if text == "*" {
			r.everybody = true
			continue
		}
		u, err := osuser.Lookup(text)
		if err != nil {
			return RunAs{}, fmt.Errorf("run_as has %q, which %w", text, err)
		}
		r.users = append(r.users, u)
	}
	return r, nil
}

// Allows reports whether the caller may start processes as u. A user without a group in the list
// allows the groups that the user has.
func (r RunAs) Allows(u osuser.User) bool {
	return r.everybody || u.IsSelf() || slices.ContainsFunc(r.users, func(listed osuser.User) bool { return listed.Includes(u) })
}

// and returns what both allow.
func (r RunAs) and(other RunAs) RunAs {
	switch {
	case r.everybody:
		return other
	case other.everybody:
		return r
	}
	refused := func(by RunAs) func(osuser.User) bool { return func(u osuser.User) bool { return !by.Allows(u) } }
	return RunAs{users: append(slices.DeleteFunc(slices.Clone(r.users), refused(other)), slices.DeleteFunc(slices.Clone(other.users), refused(r))...)}
}
