// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// usageError is a mistake in the arguments of a command.
type usageError struct {
	error
	command string
}

func (e *usageError) Unwrap() error { return e.error }

func (e *usageError) Error() string {
	return fmt.Sprintf("%v\nSee '%s --help' for usage.", e.error, e.command)
}

// exitStatus is what ends a command with an exit status of its own. err is printed; it may be nil.
type exitStatus struct {
	status int
	err    error
}

func (e *exitStatus) Unwrap() error { return e.err }

func (e *exitStatus) Error() string { return fmt.Sprintf("exit status %d: %v", e.status, e.err) }

// printError prints an error as kubectl does, each of several in a line of its own.
func printError(to io.Writer, err error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			printError(to, err)
		}
		return
	}
	fmt.Fprintln(to, describe(err))
}

// describe returns the text of an error, in kubectl's words where kubectl has some.
func describe(err error) string {
	var server apierrors.APIStatus
	var connection *url.Error
	switch {
	case errors.As(err, &server):
		if reason := server.Status().Reason; reason != metav1.StatusReasonUnknown {
			return fmt.Sprintf("Error from server (%s): %v", reason, err)
		}
		return fmt.Sprintf("Error from server: %v", err)
	case errors.As(err, &connection) && isDial(connection):
		host := connection.URL
		if parsed, err := url.Parse(connection.URL); err == nil {
			host = parsed.Host
		}
		return fmt.Sprintf("Unable to connect to the server %s: %v; is it the right one? The kubeconfig names it: "+
			"see KUBECONFIG, --kubeconfig and --context", host, connection.Err)
	default:
		return fmt.Sprintf("error: %v", err)
	}
}

// isDial reports whether there was no connection.
func isDial(err error) bool {
	var operation *net.OpError
	return errors.As(err, &operation) && operation.Op == "dial"
}
