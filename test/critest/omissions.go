// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"regexp"
	"strings"
)

// omissions are specs that are not run.
type omissions []struct{ spec, reason string }

// leftOut are all specs that cannot be run here, by a part of their names. Others leave themselves
// out, and say why in the report: those of AppArmor on a machine without it, for example.
var leftOut = omissions{
	{"benchmark about", "measures, tests nothing"},
	{
		"public image with digest should be pulled and removed",
		"requests an image by the digest of the original, which only its own registry has",
	},
	{
		"port mapping with host port and container port",
		"needs the CNI plugin portmap, and with it iptables on the machine",
	},
	{
		"runtime should support MaskedPaths",
		"masks /bin/ls and runs it from a shell: that of Debian's busybox has an ls of its own",
	},
	{"Host idmap mount support is needed runtime should support NamespaceMode_POD",
		"needs a fresh /proc in a user namespace, which the kernel refuses " +
			"next to one like a sandbox's, with files mounted over some of the machine's sysctls"},
}

// pattern is a regular expression that matches them.
func (o omissions) pattern() string {
	var names []string
	for _, omission := range o {
		names = append(names, regexp.QuoteMeta(omission.spec))
	}
	return strings.Join(names, "|")
}

// reason is why a spec is left out, or empty.
func (o omissions) reason(name string) string {
	for _, omission := range o {
		if strings.Contains(name, omission.spec) {
			return omission.reason
		}
	}
	return ""
}
