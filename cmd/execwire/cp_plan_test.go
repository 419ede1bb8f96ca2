package main

import "testing"

// TestPlanCopies_PathsOfSystems: a drive of Windows is not the colon of a path of the server.
func TestPlanCopies_PathsOfSystems(t *testing.T) {
	for _, tc := range []struct {
		system, source, dest string
		from                 string // the path of the source; empty if the command line is refused
		to                   string
		fromServer, content  bool
		directory            bool // DEST is one
	}{
		{system: "windows", source: `C:\x`, dest: ":/srv", from: `C:\x`, to: "/srv"},
		{system: "windows", source: `C:/x`, dest: ":/srv/", from: `C:/x`, to: "/srv", directory: true},
		{system: "windows", source: `C:\x\.`, dest: ":/srv", from: `C:\x\.`, to: "/srv", content: true},
		{system: "windows", source: `C:\`, dest: ":/srv", from: `C:\`, to: "/srv", content: true},
		{system: "windows", source: `C:`, dest: ":/srv", from: `C:`, to: "/srv", content: true},
		{system: "windows", source: `..\x`, dest: ":/srv/../a", from: `..\x`, to: "/a"},
		{system: "windows", source: ":/srv/x", dest: `D:\y\`, from: "/srv/x", to: `D:\y\`, fromServer: true, directory: true},
		{system: "windows", source: ":/srv/x", dest: `D:/y`, from: "/srv/x", to: `D:/y`, fromServer: true},
		{system: "windows", source: ":/srv/x/", dest: `.`, from: "/srv/x/", to: `.`, fromServer: true, directory: true},
		{system: "windows", source: `C:\x`, dest: `D:/y`},
		{system: "windows", source: `:/srv/a:b`, dest: `.`},
		{system: "windows", source: `:/srv/..\b`, dest: `.`},
		{system: "linux", source: `C:\x`, dest: ":/srv", from: `C:\x`, to: "/srv"},
		{system: "linux", source: `:/srv/a:b`, dest: `.`, from: "/srv/a:b", to: ".", fromServer: true, directory: true},
		{system: "linux", source: `C:\`, dest: ":/srv", from: `C:\`, to: "/srv"},
		{system: "darwin", source: "/x/.", dest: ":/srv/", from: "/x/.", to: "/srv", content: true, directory: true},
	} {
		plan, err := planCopiesOn(tc.system, []string{tc.source, tc.dest}, cpFlags{})
		if tc.from == "" {
			if err == nil {
				t.Errorf("on %s, cp %s %s is accepted: %+v", tc.system, tc.source, tc.dest, plan)
			}
			continue
		}
		if err != nil {
			t.Errorf("on %s, cp %s %s: %v", tc.system, tc.source, tc.dest, err)
			continue
		}
		source := plan.sources[0]
		if source.path != tc.from || source.contentOnly != tc.content || plan.dest != tc.to || plan.fromServer != tc.fromServer ||
			plan.toServer == tc.fromServer || plan.destIsDirectory != tc.directory {
			t.Errorf("on %s, cp %s %s: %+v", tc.system, tc.source, tc.dest, plan)
		}
	}
}

func TestIsForeignPath(t *testing.T) {
	for name, want := range map[string]bool{"x/y": false, "": false, `C:\x`: true, "C:/x": true, `\x`: true} {
		if got := isForeignPath("windows", name); got != want || isForeignPath("linux", name) {
			t.Errorf("%q is foreign: %v", name, got)
		}
	}
}
