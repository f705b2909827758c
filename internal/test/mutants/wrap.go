package main

import (
	"go/ast"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// wrap returns the source of f with its function renamed, and one with the row's body in its place.
func (r row) wrap(f *found) string {
	name := f.fn.Name
	src := f.text(f.file.FileStart, name.Pos()) + originalName(name.Name) + f.text(name.End(), f.file.FileEnd)
	return r.importing(src, f) + "\n" + r.generated(f, name.Name, r.body)
}

// generated returns a function with the signature of f's.
func (r row) generated(f *found, name, body string) string {
	own := f.fn.Name
	return f.text(f.fn.Pos(), own.Pos()) + name + f.text(own.End(), f.fn.Body.Lbrace) + "{\n" + body + "\n}\n"
}

// importing adds the row's import to the source of f if it is not there, on the line of the package clause, so that
// lines keep their numbers.
func (r row) importing(src string, f *found) string {
	path := strconv.Quote(r.imports)
	has := func(i *ast.ImportSpec) bool { return i.Path.Value == path }
	if r.imports == "" || slices.ContainsFunc(f.file.Imports, has) {
		return src
	}
	at := f.offset(f.file.Name.End())
	return src[:at] + "; import " + path + src[at:]
}

// originalName is the name under which a row's body may call the function that it replaces. It is not exported.
func originalName(name string) string {
	first, size := utf8.DecodeRuneInString(name)
	return strings.ToLower(string(unicode.ToLower(first))) + name[size:] + "Original"
}
