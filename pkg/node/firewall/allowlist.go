// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// anyAccount stands for every service account of a namespace.
const anyAccount = "*"

// Allowlist are the pods that may request devices from the container runtime by themselves: those
// of a service account, by its namespace and name. The zero value allows none.
type Allowlist struct {
	accounts map[string]map[string]bool // by namespace
}

// ParseAllowlist reads entries namespace/serviceaccount, or namespace/* for all service accounts of
// a namespace. Its error names the entry.
func ParseAllowlist(entries []string) (Allowlist, error) {
	list := Allowlist{accounts: map[string]map[string]bool{}}
	for _, entry := range entries {
		namespace, account, _ := strings.Cut(entry, "/")
		problems := validation.IsDNS1123Label(namespace)
		if account != anyAccount {
			problems = append(problems, validation.IsDNS1123Subdomain(account)...)
		}
		if len(problems) > 0 {
			return Allowlist{}, fmt.Errorf("%q is not namespace/serviceaccount or namespace/*: %s",
				entry, strings.Join(problems, "; "))
		}
		if list.accounts[namespace] == nil {
			list.accounts[namespace] = map[string]bool{}
		}
		list.accounts[namespace][account] = true
	}
	return list, nil
}

// Allows reports whether pods of the service account are let through. decided is false if that
// depends on the service account, and account is empty: it is not known yet.
func (l Allowlist) Allows(namespace, account string) (allowed, decided bool) {
	accounts := l.accounts[namespace]
	switch {
	case accounts[anyAccount]:
		return true, true
	case len(accounts) == 0:
		return false, true
	case account == "":
		return false, false
	default:
		return accounts[account], true
	}
}
