package auth

import (
	"slices"
	"strings"
)

// Permissions is a set of things that a caller may do. The zero value is
// nothing.
type Permissions uint16

// What a caller may be allowed. Every call needs one of these.
const (
	View        Permissions = 1 << iota // look at processes and read their output
	Start                               // start processes, run them, take them over
	Control                             // write to processes, signal and terminate them
	Session                             // lease, list, grant and close sessions
	Environment                         // ask what this machine is
	ReadFiles                           // read files, list directories
	WriteFiles                          // write, make, copy and remove files and directories
	HTTP                                // make requests over HTTP
)

// Everything is all permissions.
const Everything = View | Start | Control | Session | Environment | ReadFiles | WriteFiles | HTTP

var permissionNames = []string{"view", "start", "control", "session", "environment", "read_files", "write_files", "http"}

// ParsePermissions returns the set of the named permissions; "all" is every one.
// ok is false for a name that is none, which unknown then is.
func ParsePermissions(names []string) (set Permissions, unknown string, ok bool) {
	for _, name := range names {
		i := slices.Index(permissionNames, name)
		switch {
		case name == "all":
			set |= Everything
		case i < 0:
			return 0, name, false
		default:
			set |= 1 << i
		}
	}
	return set, "", true
}

// Has reports whether everything in other is in p.
func (p Permissions) Has(other Permissions) bool { return p&other == other }

// String returns the names, separated by commas, or "none".
func (p Permissions) String() string {
	var names []string
	for i, name := range permissionNames {
		if p.Has(1 << i) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
