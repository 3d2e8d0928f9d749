// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginload

import (
	"context"
	"time"
)

// startTimeout is how long a child may take to start and to report, in addition to the plugin's
// timeout.
const startTimeout = 15 * time.Second

// try loads file in a child process and returns the plugin's name. The error is a *refusal, or
// ctx's.
func try(ctx context.Context, file string, t target) (name string, err error) {
	trialContext, cancel := context.WithTimeout(ctx, t.timeout+startTimeout)
	defer cancel()
	child, err := StartChild(trialContext, requestEnv, request{File: file, Symbol: t.symbol, TimeLimit: t.timeout})
	if err != nil {
		return "", refuse("allow this program to start itself", "cannot be tried in a child process: %v", err)
	}
	var rep reply
	decodeErr := child.Replies.Decode(&rep)
	ended := child.Wait()
	switch {
	case decodeErr == nil && rep.Refusal != nil:
		return "", rep.Refusal
	case decodeErr == nil:
		return rep.Name, nil
	case ctx.Err() != nil:
		return "", ctx.Err()
	case trialContext.Err() != nil:
		return "", refuse(reportToAuthor, "the process that tried it hung for %v", t.timeout+startTimeout)
	}
	return "", refuse(reportToAuthor, "ended the process that tried it: %s", ended)
}
