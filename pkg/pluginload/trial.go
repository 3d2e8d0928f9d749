// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginload

import (
	"context"
	"time"
)

// startLimit is how long a child may take to start and to report, beyond the plugin's limit.
const startLimit = 15 * time.Second

// try has a child process load file and returns the plugin's name. The error is a *refusal, or
// ctx's.
func try(ctx context.Context, file string, t target) (name string, err error) {
	within, cancel := context.WithTimeout(ctx, t.timeLimit+startLimit)
	defer cancel()
	child, err := StartChild(within, requestEnv, request{File: file, Symbol: t.symbol, TimeLimit: t.timeLimit})
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
	case within.Err() != nil:
		return "", refuse(askAuthor, "the process that tried it hung for %v", t.timeLimit+startLimit)
	}
	return "", refuse(askAuthor, "ended the process that tried it: %s", ended)
}
