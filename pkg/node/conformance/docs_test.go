// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/documents/documentstest"
)

// page is the documentation of the checks.
const page = "../../../docs/vendors/plugin-checks.md"

var rewrite = flag.Bool("rewrite", false, "write "+page)

func TestTheDocumentationHasEachCheck(t *testing.T) {
	var text strings.Builder
	text.WriteString("# What `kubecri plugin test` checks\n\n" +
		"The [tests](../../pkg/node/conformance) write this page. [Test it](plugins.md#test-it) says how to run\n" +
		"them. For a check that fails, the program prints what to do.\n")
	for _, kind := range Kinds() {
		fmt.Fprintf(&text, "\n## %s\n\n", strings.ToUpper(kind.Name[:1])+kind.Name[1:])
		for _, check := range kind.Checks {
			text.WriteString(documentstest.Item(fmt.Sprintf("- **%s**: %s", check.Name, check.About)))
		}
	}
	documentstest.Generated(t, page, text.String(), *rewrite,
		"go test ./pkg/node/conformance -run Documentation -rewrite")
}
