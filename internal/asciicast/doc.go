// Package asciicast writes and reads recordings of terminals in the format of asciinema:
// asciicast v2 and v3, see https://docs.asciinema.org/manual/asciicast/v3/. It knows no
// processes and no files.
package asciicast
