// Package drops has calls that drop an error, with and without a directive.
package drops

import (
	"fmt"
	"io"
	"net"
	"os"
)

func dropped(file *os.File) {
	file.Sync()        // want "the error of file.Sync is dropped"
	defer file.Close() // want "the error of file.Close is dropped"
}

func allowed(file *os.File) {
	defer file.Close() //nolint:errcheck // opened for reading
	//nolint:errcheck // a directive on a line of its own is for the next
	file.Sync()
}

func exempted(connection net.Conn, out io.Writer) {
	defer connection.Close()
	defer os.RemoveAll("temporary")
	fmt.Fprintln(out, "for people")
}

func dead(file *os.File) error {
	//nolint:errcheck // nothing is dropped // want "no error is dropped here"
	return file.Close()
}

func illFormed(file *os.File) {
	file.Sync() /* want "write the directive as" */                                     //nolint:errcheck
	file.Sync() /* want "write the directive as" "the error of file.Sync is dropped" */ //nolint:gosec // no such linter
}
