package recorder

import "os"

// SetFile makes a recording write to another file.
func SetFile(rec *Recording, path string) {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		panic(err)
	}
	_ = rec.file.Close()
	rec.file, rec.written = file, 0
}
