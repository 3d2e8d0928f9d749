// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"os"
	"strings"
	"testing"
)

// seeds returns the values that fuzzing starts from.
func seeds(tb testing.TB) []string {
	tb.Helper()
	text, err := os.ReadFile("testdata/values.txt")
	if err != nil {
		tb.Fatal(err)
	}
	var values []string
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "#") {
			values = append(values, strings.TrimSuffix(line, "\n"))
		}
	}
	return values
}

// A value that the policy admits from a user decodes without a field of the scheduler, or not at
// all.
func checkAgreement(t *testing.T, p *policy, value string) {
	t.Helper()
	if value == "" || p.refusal(t, request{user: "ada", resource: "pods", object: annotated(value)}) != "" {
		return
	}
	info, err := DecodePod(value)
	if err != nil {
		return
	}
	if info.NodeName != "" {
		t.Errorf("the policy lets through a value that decodes to node %q: %s", info.NodeName, value)
	}
	for name, container := range info.Containers() {
		if len(container.DevRequests)+len(container.AllocateFrom) > 0 {
			t.Errorf("the policy lets through a value that decodes to an allocation of container %q: %s",
				name, value)
		}
	}
}

func TestPolicyAdmitsNoForgedAllocation(t *testing.T) {
	p := readPolicy(t, "kubedevice-pod-allocations")
	letThrough := 0
	for _, value := range append(seeds(t), spellings(allocated)...) {
		checkAgreement(t, p, value)
		if p.refusal(t, request{user: "ada", resource: "pods", object: annotated(value)}) == "" {
			letThrough++
		}
	}
	if letThrough == 0 {
		t.Error("the policy refuses every value: the test shows nothing")
	}
}

// spellings returns value with other spellings of the scheduler's fields.
func spellings(value string) []string {
	var all []string
	for _, word := range []string{"devrequests", "allocatefrom", "nodename"} {
		for i := range word {
			letter := word[i : i+1]
			for _, other := range []string{
				strings.ToUpper(letter), `\u00` + hex(word[i]), `\U00` + hex(word[i]), `\` + letter, letter + "\u200b",
				letter + "\x00", "",
				map[string]string{"s": "\u017f", "k": "\u212a"}[letter],
			} {
				all = append(all, strings.ReplaceAll(value, word, word[:i]+other+word[i+1:]))
			}
		}
		all = append(all,
			strings.ReplaceAll(value, `"`+word+`"`, `"x":0,"`+word+`"`),
			strings.ReplaceAll(value, `"`+word+`"`, `'`+word+`'`),
			strings.ReplaceAll(value, `"`+word+`"`, word),
			strings.ReplaceAll(value, `"`+word+`"`, `" `+word+`"`),
			strings.ReplaceAll(value, `"`+word+`"`, "\""+strings.Join(strings.Split(word, ""), "\n")+"\""))
	}
	return all
}

// hex returns the two hexadecimal digits of a byte.
func hex(b byte) string {
	const digits = "0123456789abcdef"
	return string([]byte{digits[b>>4], digits[b&15]})
}

func FuzzPolicyAndDecoderAgree(f *testing.F) {
	for _, value := range append(seeds(f), spellings(allocated)...) {
		f.Add(value)
	}
	p := readPolicy(f, "kubedevice-pod-allocations")
	f.Fuzz(func(t *testing.T, value string) { checkAgreement(t, p, value) })
}
