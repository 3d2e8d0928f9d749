// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import "strings"

// Different begins a placeholder that stands for an instance of its own: of one container, two
// placeholders of the same levels that begin with it get different instances. All other
// placeholders may share one.
const Different = "!"

// isDifferent reports whether a placeholder begins with Different.
func isDifferent(placeholder string) bool { return strings.HasPrefix(placeholder, Different) }
