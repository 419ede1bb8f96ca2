package fsops

// WithNames gives temporary files hidden names, as on file systems without unnamed
// temporary files.
func (s *Uploads) WithNames() *Uploads {
	s.named = true
	return s
}
