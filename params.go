package anylock

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// coreParams are the URL parameters that Open understands by itself.
var coreParams = []string{"ttl", "margin", "maxhold", "renew", "timeout", "holder", "require"}

// cutCoreParams takes the core's parameters out of a backend URL and returns them as options.
func cutCoreParams(raw string) (rest string, opts []Option, err error) {
	base, p, err := SplitURL(raw)
	if err != nil {
		return "", nil, err
	}
	if p.Has("ttl") {
		opts = append(opts, WithTTL(p.Duration("ttl", 0)))
	}
	if p.Has("margin") {
		opts = append(opts, WithMargin(p.Duration("margin", 0)))
	}
	if p.Has("maxhold") {
		opts = append(opts, WithMaxHold(p.Duration("maxhold", 0)))
	}
	if p.Has("timeout") {
		opts = append(opts, WithRequestTimeout(p.Duration("timeout", 0)))
	}
	if p.Has("holder") {
		opts = append(opts, WithHolder(p.String("holder", "")))
	}
	if p.Has("renew") {
		on := p.Bool("renew", true)
		opts = append(opts, acquireOption(func(c *config) { c.noRenewal = !on }))
	}
	if p.Has("require") {
		least, err := ParseGuarantees(p.String("require", ""))
		if err != nil {
			return "", nil, err
		}
		opts = append(opts, Require(least))
	}
	if p.err != nil {
		return "", nil, p.err
	}
	others := url.Values{}
	for key, values := range p.values {
		if !slices.Contains(coreParams, key) {
			others[key] = values
		}
	}
	if len(others) > 0 {
		base += "?" + others.Encode()
	}
	return base, opts, nil
}

// Params are the parameters of a backend's URL. A backend asks for each that it knows and then calls Err, which reports
// the first that is wrong or was not asked for.
type Params struct {
	values url.Values
	asked  []string
	err    error
}

// SplitURL cuts a backend's URL in two: all before the "?", untouched, since some stores allow several hosts there, and
// the parameters. Its errors do not contain the URL, which may contain a password.
func SplitURL(raw string) (base string, p *Params, err error) {
	base, query, _ := strings.Cut(raw, "?")
	switch {
	case strings.Contains(raw, "#"):
		return "", nil, Invalidf("the URL contains a #; write %%23 if it belongs to a name or a password")
	case strings.Contains(query, "@"):
		return "", nil, Invalidf("the URL has an @ behind a ?; write %%3F for a ? in a password, and %%40 for an @ in a parameter")
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return "", nil, Invalidf("the URL's parameters are not well formed; write them as ?name=value&name=value with %%XX for special letters")
	}
	for key, v := range values {
		if len(v) > 1 {
			if !slices.Contains(coreParams, key) {
				key = "(not shown, since it may belong to a password with an & in it)"
			}
			return "", nil, Invalidf("the URL has parameter %s more than once", key)
		}
	}
	return base, &Params{values: values}, nil
}

// Has reports whether the URL has the parameter.
func (p *Params) Has(name string) bool {
	p.asked = append(p.asked, name)
	return p.values.Has(name)
}

// String returns a parameter as it is, or absent.
func (p *Params) String(name, absent string) string {
	if !p.Has(name) {
		return absent
	}
	return p.values.Get(name)
}

// Duration returns a parameter such as 1500ms or 2m, or absent.
func (p *Params) Duration(name string, absent time.Duration) time.Duration {
	return param(p, name, absent, time.ParseDuration, `a duration such as "1500ms" or "2m"`)
}

// Int returns a parameter that is a whole number, or absent.
func (p *Params) Int(name string, absent int) int {
	return param(p, name, absent, strconv.Atoi, "a whole number")
}

// Bool returns a parameter that is true or false, or absent.
func (p *Params) Bool(name string, absent bool) bool {
	return param(p, name, absent, strconv.ParseBool, "true or false")
}

func param[T any](p *Params, name string, absent T, parse func(string) (T, error), want string) T {
	if !p.Has(name) {
		return absent
	}
	v, err := parse(p.values.Get(name))
	if err != nil {
		if p.err == nil {
			p.err = Invalidf("URL parameter %s: it must be %s", name, want) // it may be the rest of a password
		}
		return absent
	}
	return v
}

// Err returns an error that matches [ErrInvalid] for the first parameter that could not be read or that nobody asked for.
func (p *Params) Err() error {
	if p.err != nil {
		return p.err
	}
	known := append(slices.Clone(coreParams), p.asked...)
	slices.Sort(known)
	known = slices.Compact(known)
	for key := range p.values {
		if !slices.Contains(known, key) {
			// It is not shown, since it may be the rest of a password with an & in it.
			if hint := suggest(key, known); hint != "" {
				return Invalidf("the URL has an unknown parameter%s", hint)
			}
			return Invalidf("the URL has an unknown parameter (known are: %s); an & in a password is written %%26", strings.Join(known, ", "))
		}
	}
	return nil
}

// shown is a part of a URL for an error, unless it is such that it may be part of a password instead.
func shown(part string) string {
	const most = 32
	harmless := func(r rune) bool {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("_-+.", r)
	}
	if len(part) > most || strings.ContainsFunc(part, func(r rune) bool { return !harmless(r) }) {
		return "(not shown: it has letters that are not part of any, or is long)"
	}
	return strconv.Quote(part)
}

// suggest names the known word that is nearest to a misspelled one.
func suggest(word string, known []string) string {
	best, least := "", len(word)/3+2
	for _, k := range known {
		if d := editDistance(strings.ToLower(word), k); d < least {
			best, least = k, d
		}
	}
	if best == "" {
		return ""
	}
	return ", did you mean " + strconv.Quote(best) + "?"
}

// editDistance counts the single-byte insertions, deletions and changes that lead from a to b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0]++
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
