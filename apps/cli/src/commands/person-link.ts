import type { Command } from 'commander';
import { CliFailure, EXIT } from '../failure.ts';
import { printJson, printText } from '../output/print.ts';
import { asOwner, type OwnerOptions, withOwner } from '../owner-access.ts';
import { doneOrFail } from '../owner-refusal.ts';

/** OpenID Connect Core 1.0, section 2: a subject has at most 255 ASCII characters. Unprintable ones would deceive who reads the list. */
const SUBJECT = /^[\x20-\x7e]{1,255}$/;

interface Options extends OwnerOptions {
  tenant: string;
  name: string;
  issuer: string;
  subject: string;
}

/** `counterstamp person link`. */
export function addPersonLink(person: Command): void {
  withOwner(
    person
      .command('link')
      .description('Say who a person is at the identity provider: only linked people sign in through it.')
      .requiredOption('--tenant <tenant>', 'whose')
      .requiredOption('--name <name>', 'who')
      .requiredOption('--issuer <url>', 'the provider, exactly as its tokens name it (iss)')
      .requiredOption('--subject <id>', 'the person there, exactly as its tokens name them (sub): never an address'),
  )
    .addHelpText(
      'after',
      '\nExample:\n  counterstamp person link --tenant shop_north --name ana@example.com --issuer https://login.example.com --subject 00u1a2b3c4',
    )
    .action(async (options: Options) => {
      const { tenant, name, issuer, subject } = options;
      if (!isIssuer(issuer)) {
        throw new CliFailure(`"${issuer}" is no issuer.`, 'Write it as https://login.example.com.', EXIT.usage);
      }
      if (!SUBJECT.test(subject)) {
        throw new CliFailure('--subject must be 1 to 255 printable ASCII characters.', undefined, EXIT.usage);
      }
      const { principal_id, changed } = await asOwner(options.fleet, 'person link', async (sql) => {
        const { linkPerson } = await import('@counterstamp/manifest-store');
        return doneOrFail(await linkPerson(sql, { tenant_id: tenant, name, issuer, subject }));
      });
      if (options.json) return printJson({ principal_id, changed });
      printText(changed ? `${name} may sign in through ${issuer}.` : `${name} was linked before; nothing changed.`);
    });
}

/** An issuer is a URL without query and fragment (OpenID Connect Core 1.0, section 2); plain http is for a provider on one's own machine. */
function isIssuer(text: string): boolean {
  if (!URL.canParse(text) || /[?#]/.test(text)) return false;
  const { protocol, hostname } = new URL(text);
  return protocol === 'https:' || (protocol === 'http:' && ['localhost', '127.0.0.1', '[::1]'].includes(hostname));
}
