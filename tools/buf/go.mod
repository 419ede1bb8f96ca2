module github.com/bufbuild/buf/cmd/buf/buf

go 1.26.7

require github.com/bufbuild/buf v1.73.0
