package fsops

// WithNames has the content of uploads have hidden names until it is in its
// place, as on file systems that know no files without a name.
func (s *Uploads) WithNames() *Uploads {
	s.named = true
	return s
}
