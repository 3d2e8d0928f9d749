// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import "testing"

// The proxy sends only unary calls on the connection for lists.
func TestListsAreUnaryMethods(t *testing.T) {
	unary := criMethods()
	for method := range criLists() {
		if !unary[method] {
			t.Errorf("%s is not unary", method)
		}
	}
}
