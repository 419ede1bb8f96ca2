// Package buildinfo tells what a program was built from.
package buildinfo

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Set by the linker in releases: -X github.com/execwire/execwire/internal/buildinfo.version=1.2.3.
var version, commit, date string

// Info describes a build. Its members are those of execwire version --json.
type Info struct {
	// Version is a semantic version without v; that of the module if the go command
	// installed the program; or devel.
	Version string `json:"version"`
	// Commit is the revision of the source; empty if not known. With +changes it had
	// changes that were not committed.
	Commit string `json:"commit,omitempty"`
	// Date is that of the commit, as RFC 3339 in UTC; empty if not known.
	Date string `json:"date,omitempty"`
	// GoVersion is the version of the compiler.
	GoVersion string `json:"go_version"`
	// OperatingSystem and Architecture are those that the program was built for, in the
	// words of Go.
	OperatingSystem string `json:"operating_system"`
	Architecture    string `json:"architecture"`
}

// Get returns the description of this program.
func Get() Info {
	info := Info{
		Version: version, Commit: commit, Date: date,
		GoVersion: runtime.Version(), OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH,
	}
	if info.Version == "" {
		build, _ := debug.ReadBuildInfo()
		info.fromBuild(build)
	}
	return info
}

// fromBuild sets what the go command has recorded. build may be nil.
func (i *Info) fromBuild(build *debug.BuildInfo) {
	i.Version = "devel"
	if build == nil {
		return
	}
	if build.Main.Version != "" && build.Main.Version != "(devel)" {
		i.Version = build.Main.Version
	}
	changed := false
	for _, setting := range build.Settings {
		switch setting.Key {
		case "vcs.revision":
			i.Commit = setting.Value
		case "vcs.time":
			i.Date = setting.Value
		case "vcs.modified":
			changed = setting.Value == "true"
		}
	}
	if changed && i.Commit != "" {
		i.Commit += "+changes"
	}
}

// String returns one line: version, commit if known, Go version and system.
func (i Info) String() string {
	from := ""
	if i.Commit != "" {
		from = fmt.Sprintf("%.12s, ", i.Commit)
	}
	return fmt.Sprintf("%s (%s%s, %s/%s)", i.Version, from, i.GoVersion, i.OperatingSystem, i.Architecture)
}
