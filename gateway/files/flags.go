package files

// following is the member that says whether to follow symbolic links.
type following struct {
	Follow *bool `param:"followSymlinks,optional"`
}

func (f *following) refusesLinks() bool { return f.Follow != nil && !*f.Follow }

// isNotFalse reports whether a flag with the default true is set.
func isNotFalse(flag *bool) bool { return flag == nil || *flag }

func isSet(flag *bool) bool { return flag != nil && *flag }
