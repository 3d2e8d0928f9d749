// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"errors"
	"time"

	"github.com/kubedevice/kubedevice/pkg/plugincall"
	"github.com/kubedevice/kubedevice/pkg/truncate"
)

// ErrNoAnswer is matched by the errors that say that a plugin did not answer: it failed, or was not
// called because of an earlier failure. Another time it may answer. An error that a plugin returned
// is an answer.
var ErrNoAnswer = plugincall.ErrNoAnswer

// refusal is the error of a call that failed, and of those that are not made because of it.
type refusal struct {
	*plugincall.Failure
	wait time.Duration // before the next call is made
}

// Unwrap returns the failure.
func (r *refusal) Unwrap() error { return r.Failure }

// RetryAfter returns how long to wait before the plugin is called again, after ErrNoAnswer.
func RetryAfter(err error) time.Duration {
	var refused *refusal
	if !errors.As(err, &refused) {
		return firstBackOff
	}
	return max(refused.wait, firstBackOff)
}

// cause returns a failure's text without the plugin's name, shortened for a message.
func cause(err error) string {
	var failure *plugincall.Failure
	if errors.As(err, &failure) {
		return Clip(failure.Text)
	}
	return Clip(err.Error())
}

// maxText is how many bytes of a plugin's text become part of an event, which Kubernetes limits to
// 1024.
const maxText = 256

// Clip returns a text that a plugin made, shortened when it is too long for a message.
func Clip(text string) string { return truncate.Bytes(text, maxText) }
