<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="de" sourcelanguage="en">
<context>
<name>AboutPage</name>
<message>
<source>About Outrider</source>
<translation>Über Outrider</translation>
</message>
<message>
<source>Version {version}</source>
<translation>Version {version}</translation>
</message>
<message>
<source>Parts</source>
<translation>Bestandteile</translation>
</message>
<message>
<source>Licence</source>
<translation>Lizenz</translation>
</message>
<message>
<source>Chat with Mixture-of-Experts models that are larger than your memory. Nothing is sent anywhere. It is made of the parts below.</source>
<translation>Chatten mit Mixture-of-Experts-Modellen, die größer sind als der Speicher. Nichts wird irgendwohin gesendet. Es besteht aus den Teilen unten.</translation>
</message>
<message>
<source>This copy does not contain the text of the licence.</source>
<translation>Dieser Kopie fehlt der Text der Lizenz.</translation>
</message>
</context>
<context>
<name>AnswerView</name>
<message>
<source>Answer</source>
<translation>Antwort</translation>
</message>
<message>
<source>Answer without them</source>
<translation>Ohne sie antworten</translation>
</message>
<message>
<source>Answer without these tools</source>
<translation>Ohne diese Werkzeuge antworten</translation>
</message>
<message>
<source>Copy</source>
<translation>Kopieren</translation>
</message>
<message>
<source>Copy this answer</source>
<translation>Diese Antwort kopieren</translation>
</message>
<message>
<source>Continue this answer</source>
<translation>Diese Antwort fortsetzen</translation>
</message>
<message>
<source>Continue</source>
<translation>Fortsetzen</translation>
</message>
<message>
<source>Retry</source>
<translation>Noch einmal</translation>
</message>
<message>
<source>Ask for another answer</source>
<translation>Eine andere Antwort anfordern</translation>
</message>
<message>
<source>More about this answer</source>
<translation>Mehr zu dieser Antwort</translation>
</message>
<message>
<source>One moment…</source>
<translation>Einen Moment …</translation>
</message>
<message>
<source>More answers at once</source>
<translation>Mehrere Antworten zugleich</translation>
</message>
<message>
<source>What the model saw…</source>
<translation>Was das Modell sah …</translation>
</message>
<message>
<source>Change the answer</source>
<translation>Antwort ändern</translation>
</message>
<message>
<source>New chat from here</source>
<translation>Neuer Chat ab hier</translation>
</message>
<message>
<source>Delete</source>
<translation>Löschen</translation>
</message>
<message>
<source>Keep</source>
<translation>Behalten</translation>
</message>
<message>
<source>Keep the answer as it is written here (Ctrl+Enter)</source>
<translation>Die Antwort so behalten, wie sie hier steht (Strg+Eingabe)</translation>
</message>
<message>
<source>The answer, to change</source>
<translation>Die Antwort zum Ändern</translation>
</message>
</context>
<context>
<name>Banner</name>
<message>
<source>Notice</source>
<translation>Hinweis</translation>
</message>
<message>
<source>Close this notice</source>
<translation>Diesen Hinweis schließen</translation>
</message>
</context>
<context>
<name>BranchSwitch</name>
<message>
<source>Version before this one</source>
<translation>Vorige Fassung</translation>
</message>
<message>
<source>Version after this one</source>
<translation>Nächste Fassung</translation>
</message>
</context>
<context>
<name>CallFoot</name>
<message>
<source>Refuse</source>
<translation>Ablehnen</translation>
</message>
<message>
<source>Allow once</source>
<translation>Einmal erlauben</translation>
</message>
<message>
<source>Allow in this chat</source>
<translation>In diesem Chat erlauben</translation>
</message>
<message>
<source>Always allow this tool</source>
<translation>Dieses Werkzeug immer erlauben</translation>
</message>
<message>
<source>Progress of the call</source>
<translation>Fortschritt des Aufrufs</translation>
</message>
<message>
<source>Stop</source>
<translation>Anhalten</translation>
</message>
<message>
<source>Stop this call</source>
<translation>Diesen Aufruf anhalten</translation>
</message>
<message>
<source>Ask again</source>
<translation>Erneut fragen</translation>
</message>
<message>
<source>The model wants to run “{tool}” of the server “{server}”.</source>
<translation>Das Modell möchte „{tool}“ des Servers „{server}“ ausführen.</translation>
</message>
<message numerus="yes">
<source>It has called tools %n time(s) in a row, so it asks again.</source>
<translation>
<numerusform>Es hat %n Mal hintereinander Werkzeuge aufgerufen und fragt deshalb wieder.</numerusform>
<numerusform>Es hat %n Mal hintereinander Werkzeuge aufgerufen und fragt deshalb wieder.</numerusform>
</translation>
</message>
</context>
<context>
<name>CardsSection</name>
<message>
<source>Graphics cards</source>
<translation>Grafikkarten</translation>
</message>
<message>
<source>They are known when a model is loaded.</source>
<translation>Sie sind bekannt, sobald ein Modell geladen ist.</translation>
</message>
<message>
<source>Open the folder for backends</source>
<translation>Ordner für Backends öffnen</translation>
</message>
<message>
<source>The libraries of another backend, such as CUDA, are used from the next start if they lie in this folder.</source>
<translation>Die Bibliotheken eines weiteren Backends wie CUDA werden ab dem nächsten Start benutzt, wenn sie in diesem Ordner liegen.</translation>
</message>
<message>
<source>None was found that can be used.</source>
<translation>Es wurde keine gefunden, die benutzt werden kann.</translation>
</message>
<message>
<source>{backend}: loaded ({file})</source>
<translation>{backend}: geladen ({file})</translation>
</message>
<message>
<source>{file}: not used, because {reason}</source>
<translation>{file}: nicht benutzt, weil: {reason}</translation>
</message>
</context>
<context>
<name>ChatExchange</name>
<message>
<source>All chats</source>
<translation>Alle Chats</translation>
</message>
<message>
<source>Markdown (*.md)</source>
<translation>Markdown (*.md)</translation>
</message>
<message>
<source>JSON (*.json)</source>
<translation>JSON (*.json)</translation>
</message>
<message>
<source>Export the chat</source>
<translation>Chat exportieren</translation>
</message>
<message>
<source>{chats} written to {file}.</source>
<translation>{chats} in {file} geschrieben.</translation>
</message>
<message>
<source>Writing {file}</source>
<translation>{file} wird geschrieben</translation>
</message>
<message>
<source>Import chats</source>
<translation>Chats importieren</translation>
</message>
<message>
<source>Chats (*.json *.md *.zip);;All files (*)</source>
<translation>Chats (*.json *.md *.zip);;Alle Dateien (*)</translation>
</message>
<message>
<source>Importing {file}</source>
<translation>{file} wird importiert</translation>
</message>
<message>
<source>The others were left out, because you stopped it.</source>
<translation>Die übrigen fehlen, weil Sie den Import angehalten haben.</translation>
</message>
<message>
<source>{chats} could not be read.</source>
<translation>{chats} konnten nicht gelesen werden.</translation>
</message>
<message numerus="yes">
<source>Not in the export: %n picture(s), file(s) or voice(s); the text marks where.</source>
<translation>
<numerusform>Nicht im Export: %n Bild, Datei oder Stimme; der Text sagt, wo.</numerusform>
<numerusform>Nicht im Export: %n Bilder, Dateien oder Stimmen; der Text sagt, wo.</numerusform>
</translation>
</message>
<message>
<source>{chats} imported from {file}.</source>
<translation>{chats} aus {file} importiert.</translation>
</message>
</context>
<context>
<name>ChatList</name>
<message>
<source>Chats</source>
<translation>Chats</translation>
</message>
<message>
<source>Rename…</source>
<translation>Umbenennen …</translation>
</message>
<message>
<source>Dissolve (the chats stay)</source>
<translation>Auflösen (die Chats bleiben)</translation>
</message>
<message>
<source>Rename</source>
<translation>Umbenennen</translation>
</message>
<message>
<source>Unpin</source>
<translation>Lösen</translation>
</message>
<message>
<source>Pin</source>
<translation>Anheften</translation>
</message>
<message>
<source>Folder</source>
<translation>Ordner</translation>
</message>
<message>
<source>New folder…</source>
<translation>Neuer Ordner …</translation>
</message>
<message>
<source>Into no folder</source>
<translation>In keinen Ordner</translation>
</message>
<message>
<source>Export as Markdown…</source>
<translation>Als Markdown exportieren …</translation>
</message>
<message>
<source>Export as JSON…</source>
<translation>Als JSON exportieren …</translation>
</message>
<message>
<source>Export all chats…</source>
<translation>Alle Chats exportieren …</translation>
</message>
<message>
<source>Delete</source>
<translation>Löschen</translation>
</message>
</context>
<context>
<name>ChatListModel</name>
<message>
<source>{chat}, pinned</source>
<translation>{chat}, angeheftet</translation>
</message>
</context>
<context>
<name>ChatPage</name>
<message>
<source>Pasted image</source>
<translation>Eingefügtes Bild</translation>
</message>
<message>
<source>The clipboard holds neither text, nor an image, nor files.</source>
<translation>Die Zwischenablage enthält weder Text noch ein Bild noch Dateien.</translation>
</message>
<message>
<source>The program gave only an address, and nothing is loaded from it. Copy the image there and paste it here, or save it and drop the file.</source>
<translation>Das Programm gab nur eine Adresse an, und von dort wird nichts geladen. Kopieren Sie das Bild dort und fügen Sie es hier ein, oder speichern Sie es und ziehen Sie die Datei hierher.</translation>
</message>
<message>
<source>The field is full: it holds {characters}.</source>
<translation>Das Feld ist voll: Es fasst {characters}.</translation>
</message>
<message>
<source>Attach the text as a file</source>
<translation>Den Text als Datei anhängen</translation>
</message>
<message>
<source>Pasted text</source>
<translation>Eingefügter Text</translation>
</message>
<message>
<source>A text of {characters} is attached as a file.</source>
<translation>Ein Text von {characters} ist als Datei angehängt.</translation>
</message>
<message>
<source>A text of {characters} is too long: its first {most} are attached as a file.</source>
<translation>Ein Text von {characters} ist zu lang: Seine ersten {most} sind als Datei angehängt.</translation>
</message>
<message>
<source>Undo</source>
<translation>Rückgängig</translation>
</message>
<message>
<source>Attach files</source>
<translation>Dateien anhängen</translation>
</message>
<message>
<source>All files (*)</source>
<translation>Alle Dateien (*)</translation>
</message>
<message>
<source>The last answer is copied.</source>
<translation>Die letzte Antwort ist kopiert.</translation>
</message>
<message>
<source>No model is loaded</source>
<translation>Kein Modell geladen</translation>
</message>
<message>
<source>The model is loading</source>
<translation>Das Modell wird geladen</translation>
</message>
<message>
<source>The engine is changing its settings</source>
<translation>Die Engine ändert ihre Einstellungen</translation>
</message>
<message>
<source>Stopping</source>
<translation>Wird angehalten</translation>
</message>
<message>
<source>The engine is not running</source>
<translation>Die Engine läuft nicht</translation>
</message>
<message>
<source>System prompt set</source>
<translation>System-Prompt gesetzt</translation>
</message>
<message>
<source>System prompt</source>
<translation>System-Prompt</translation>
</message>
<message>
<source>context {used} of {limit}</source>
<translation>Kontext {used} von {limit}</translation>
</message>
<message>
<source>Loading {model}</source>
<translation>{model} wird geladen</translation>
</message>
</context>
<context>
<name>ChatView</name>
<message>
<source>Loading</source>
<translation>Laden</translation>
</message>
<message>
<source>Cancel</source>
<translation>Abbrechen</translation>
</message>
<message>
<source>Cancel loading</source>
<translation>Das Laden abbrechen</translation>
</message>
<message>
<source>Import or export</source>
<translation>Import oder Export</translation>
</message>
<message>
<source>Stop</source>
<translation>Anhalten</translation>
</message>
<message>
<source>Stop the import or export</source>
<translation>Import oder Export anhalten</translation>
</message>
</context>
<context>
<name>Chats</name>
<message>
<source>The message was deleted.</source>
<translation>Die Nachricht wurde gelöscht.</translation>
</message>
<message>
<source>This message is not kept in a file.</source>
<translation>Diese Nachricht steht in keiner Datei.</translation>
</message>
<message>
<source>“{chat}” was deleted.</source>
<translation>„{chat}“ wurde gelöscht.</translation>
</message>
<message>
<source>Undo</source>
<translation>Rückgängig</translation>
</message>
</context>
<context>
<name>Chips</name>
<message>
<source>Attached files</source>
<translation>Angehängte Dateien</translation>
</message>
<message>
<source>Attach only what fits</source>
<translation>Nur anhängen, was passt</translation>
</message>
<message>
<source>Change the context…</source>
<translation>Kontext ändern …</translation>
</message>
<message>
<source>The loaded model cannot see images.</source>
<translation>Das geladene Modell kann keine Bilder sehen.</translation>
</message>
<message>
<source>This message needs {tokens}; the context holds {limit}.</source>
<translation>Diese Nachricht braucht {tokens}; der Kontext fasst {limit}.</translation>
</message>
<message>
<source>With this chat and {tokens} of this message, the context of {limit} is full. A new chat has room.</source>
<translation>Mit diesem Chat und {tokens} dieser Nachricht ist der Kontext von {limit} voll. Ein neuer Chat hat Platz.</translation>
</message>
<message>
<source>This file needs {tokens}; the context holds {limit}.</source>
<translation>Diese Datei braucht {tokens}; der Kontext fasst {limit}.</translation>
</message>
<message>
<source>The files need {tokens}; the context holds {limit}.</source>
<translation>Die Dateien brauchen {tokens}; der Kontext fasst {limit}.</translation>
</message>
<message>
<source>With this chat and {tokens} of the file, the context of {limit} is full.</source>
<translation>Mit diesem Chat und {tokens} der Datei ist der Kontext von {limit} voll.</translation>
</message>
<message>
<source>With this chat and {tokens} of the files, the context of {limit} is full.</source>
<translation>Mit diesem Chat und {tokens} der Dateien ist der Kontext von {limit} voll.</translation>
</message>
</context>
<context>
<name>CodeCard</name>
<message>
<source>Copy</source>
<translation>Kopieren</translation>
</message>
<message>
<source>Copy this code</source>
<translation>Diesen Code kopieren</translation>
</message>
<message>
<source>Wrap lines</source>
<translation>Umbrechen</translation>
</message>
<message>
<source>Wrap the lines of this code</source>
<translation>Die Zeilen dieses Codes umbrechen</translation>
</message>
<message>
<source>Code</source>
<translation>Code</translation>
</message>
</context>
<context>
<name>Composer</name>
<message>
<source>Send</source>
<translation>Senden</translation>
</message>
<message>
<source>Attach files (Ctrl+U)</source>
<translation>Dateien anhängen (Strg+U)</translation>
</message>
<message>
<source>System prompt</source>
<translation>System-Prompt</translation>
</message>
<message>
<source>System prompt and sampling</source>
<translation>System-Prompt und Sampling</translation>
</message>
<message>
<source>System prompt and sampling (Ctrl+P)</source>
<translation>System-Prompt und Sampling (Strg+P)</translation>
</message>
<message>
<source>Stop (Esc)</source>
<translation>Anhalten (Esc)</translation>
</message>
<message>
<source>Send (Enter)</source>
<translation>Senden (Eingabe)</translation>
</message>
</context>
<context>
<name>ContextMeter</name>
<message>
<source>{used} of {all} tokens of context</source>
<translation>{used} von {all} Token des Kontexts</translation>
</message>
</context>
<context>
<name>Controls</name>
<message>
<source>Trust it and use it</source>
<translation>Vertrauen und verwenden</translation>
</message>
<message>
<source>Do not use it</source>
<translation>Nicht verwenden</translation>
</message>
<message>
<source>Choose a folder on a second drive</source>
<translation>Einen Ordner auf einem zweiten Laufwerk wählen</translation>
</message>
</context>
<context>
<name>ControlsStrip</name>
<message>
<source>Engine controls</source>
<translation>Engine-Regler</translation>
</message>
<message>
<source>automatic</source>
<translation>automatisch</translation>
</message>
<message>
<source>Close the engine controls</source>
<translation>Engine-Regler schließen</translation>
</message>
<message>
<source>Settings</source>
<translation>Einstellungen</translation>
</message>
<message>
<source>Pack the experts</source>
<translation>Experten packen</translation>
</message>
<message>
<source>Pack the experts into a second file</source>
<translation>Die Experten in eine zweite Datei packen</translation>
</message>
<message>
<source>On two drives…</source>
<translation>Auf zwei Laufwerke …</translation>
</message>
<message>
<source>Pack the experts onto two drives</source>
<translation>Die Experten auf zwei Laufwerke packen</translation>
</message>
<message>
<source>Both drives are read at once.</source>
<translation>Beide Laufwerke werden gleichzeitig gelesen.</translation>
</message>
<message>
<source>Stop packing</source>
<translation>Packen anhalten</translation>
</message>
<message>
<source>Stop packing the experts</source>
<translation>Das Packen der Experten anhalten</translation>
</message>
<message>
<source>processor</source>
<translation>Prozessor</translation>
</message>
<message>
<source>another machine…</source>
<translation>anderer Rechner …</translation>
</message>
<message>
<source>This comes into force with the next answer.</source>
<translation>Das gilt ab der nächsten Antwort.</translation>
</message>
<message>
<source>This model cannot take back wrong guesses, so it has no drafts.</source>
<translation>Dieses Modell kann falsch Geratenes nicht zurücknehmen, deshalb hat es keine Entwürfe.</translation>
</message>
<message>
<source>Drafts: a layer of the model itself guesses the next tokens, which are computed together while that is faster. The answer is llama.cpp&apos;s but for rounding.</source>
<translation>Entwürfe: Eine Schicht des Modells selbst rät die nächsten Token; sie werden zusammen berechnet, solange das schneller ist. Die Antwort ist bis auf Rundung die von llama.cpp.</translation>
</message>
<message>
<source>Drafts: where the text repeats itself, several tokens are computed together while that is faster. The answer is llama.cpp&apos;s but for rounding.</source>
<translation>Entwürfe: Wo sich der Text wiederholt, werden mehrere Token zusammen berechnet, solange das schneller ist. Die Antwort ist bis auf Rundungen die von llama.cpp.</translation>
</message>
<message>
<source>Experts computed by the processor: the answer is llama.cpp&apos;s but for rounding, and the same question may get another one.</source>
<translation>Vom Prozessor berechnete Experten: die Antwort ist bis auf Rundung die von llama.cpp, und dieselbe Frage kann eine andere bekommen.</translation>
</message>
<message>
<source>The cache gets the memory that is free and the context what that permits; prefetching and eviction are chosen by what is measured while it answers.</source>
<translation>Der Cache bekommt den freien Speicher und der Kontext, was dann noch geht; Vorausladen und Verdrängen richten sich nach dem, was beim Antworten gemessen wird.</translation>
</message>
<message>
<source>in force: {value}</source>
<translation>in Kraft: {value}</translation>
</message>
</context>
<context>
<name>Decisions</name>
<message>
<source>All decisions</source>
<translation>Alle Entscheidungen</translation>
</message>
<message>
<source>What the adaptive method decided</source>
<translation>Was das adaptive Verfahren entschied</translation>
</message>
<message>
<source>Only the last</source>
<translation>Nur die letzte</translation>
</message>
<message numerus="yes">
<source>All %n decision(s)</source>
<translation>
<numerusform>Die %n Entscheidung</numerusform>
<numerusform>Alle %n Entscheidungen</numerusform>
</translation>
</message>
</context>
<context>
<name>Details</name>
<message>
<source>Check of the file</source>
<translation>Prüfung der Datei</translation>
</message>
<message>
<source>Load</source>
<translation>Laden</translation>
</message>
<message>
<source>Show folder</source>
<translation>Ordner zeigen</translation>
</message>
<message>
<source>Show the folder of the model</source>
<translation>Den Ordner des Modells zeigen</translation>
</message>
<message>
<source>{size} in {parts} in {folder}</source>
<translation>{size} in {parts} in {folder}</translation>
</message>
<message>
<source>{size} in {folder}</source>
<translation>{size} in {folder}</translation>
</message>
<message>
<source>Memory plan with {share} of the experts; {free} are free for it</source>
<translation>Speicherplan mit {share} der Experten; {free} sind dafür frei</translation>
</message>
<message>
<source>Memory plan; {free} are free for it</source>
<translation>Speicherplan; {free} sind dafür frei</translation>
</message>
<message>
<source>Loaded</source>
<translation>Geladen</translation>
</message>
<message>
<source>Load {model}</source>
<translation>{model} laden</translation>
</message>
<message>
<source>Read the whole file and compare its SHA-256 with what its repository states</source>
<translation>Die ganze Datei lesen und ihre SHA-256 mit der Angabe ihres Repositorys vergleichen</translation>
</message>
<message>
<source>Another file is being checked.</source>
<translation>Eine andere Datei wird gerade geprüft.</translation>
</message>
<message>
<source>Cancel</source>
<translation>Abbrechen</translation>
</message>
<message>
<source>Check the file</source>
<translation>Datei prüfen</translation>
</message>
<message>
<source>The file is read: {share}.</source>
<translation>Die Datei wird gelesen: {share}.</translation>
</message>
</context>
<context>
<name>DiagnosticsPage</name>
<message>
<source>Diagnostics</source>
<translation>Diagnose</translation>
</message>
<message>
<source>Copy the report</source>
<translation>Bericht kopieren</translation>
</message>
<message>
<source>Measure the model…</source>
<translation>Das Modell messen …</translation>
</message>
<message>
<source>Measure the model</source>
<translation>Das Modell messen</translation>
</message>
<message>
<source>Report</source>
<translation>Bericht</translation>
</message>
<message>
<source>The report contains versions, the machine, the model, settings, figures and errors. It contains no chats, names or folders. It is sent nowhere; you can paste it where you want.</source>
<translation>Der Bericht enthält Versionen, Rechner, Modell, Einstellungen, Zahlen und Fehler. Er enthält keine Chats, Namen oder Ordner. Er wird nirgendwohin gesendet; Sie können ihn einfügen, wo Sie wollen.</translation>
</message>
<message>
<source>Compares the model with stock llama.cpp and measures its speed on this machine</source>
<translation>Vergleicht das Modell mit unverändertem llama.cpp und misst seine Geschwindigkeit auf diesem Rechner</translation>
</message>
<message>
<source>Needs a model that is loaded and writes no answer</source>
<translation>Braucht ein geladenes Modell, das gerade keine Antwort schreibt</translation>
</message>
<message>
<source>The report is in the clipboard.</source>
<translation>Der Bericht ist in der Zwischenablage.</translation>
</message>
</context>
<context>
<name>DownloadRow</name>
<message>
<source>Download of {model}</source>
<translation>Download von {model}</translation>
</message>
<message>
<source>Pause</source>
<translation>Pause</translation>
</message>
<message>
<source>Cancel</source>
<translation>Abbrechen</translation>
</message>
<message>
<source>Resume</source>
<translation>Fortsetzen</translation>
</message>
<message>
<source>Try again</source>
<translation>Noch einmal</translation>
</message>
<message>
<source>Load</source>
<translation>Laden</translation>
</message>
<message>
<source>Dismiss</source>
<translation>Ausblenden</translation>
</message>
<message>
<source>{action}: {model}</source>
<extracomment>The action of a button for a model, as in &quot;Pause: Qwen3-30B&quot;.</extracomment>
<translation>{action}: {model}</translation>
</message>
<message>
<source>{got} of {all}</source>
<translation>{got} von {all}</translation>
</message>
<message>
<source>{size} in {folder}, complete and checked.</source>
<translation>{size} in {folder}, vollständig und geprüft.</translation>
</message>
<message>
<source>{size} in {folder}, complete. The server states no checksum.</source>
<translation>{size} in {folder}, vollständig. Der Server nennt keine Prüfsumme.</translation>
</message>
<message>
<source>{progress}, paused.</source>
<translation>{progress}, angehalten.</translation>
</message>
<message>
<source>{progress}, waits for the others.</source>
<translation>{progress}, wartet auf die anderen.</translation>
</message>
<message>
<source>{progress}. {reason} Goes on by itself in {time}.</source>
<translation>{progress}. {reason} Geht in {time} von selbst weiter.</translation>
</message>
<message>
<source>{progress}, waits for the server.</source>
<translation>{progress}, wartet auf den Server.</translation>
</message>
<message>
<source>{progress}, {speed}/s, {time} left.</source>
<translation>{progress}, {speed}/s, noch {time}.</translation>
</message>
<message>
<source>Enter a token…</source>
<translation>Token eingeben …</translation>
</message>
</context>
<context>
<name>DropHint</name>
<message>
<source>Drop to load {model}</source>
<translation>Loslassen, um {model} zu laden</translation>
</message>
<message>
<source>Drop to list the models of {folder}</source>
<translation>Loslassen, um die Modelle in {folder} aufzulisten</translation>
</message>
<message>
<source>Drop to import the servers of tools in {file}</source>
<translation>Loslassen, um die Werkzeug-Server aus {file} zu übernehmen</translation>
</message>
<message>
<source>Drop to attach {files}</source>
<translation>Loslassen, um {files} anzuhängen</translation>
</message>
</context>
<context>
<name>EnginePanel</name>
<message>
<source>Engine</source>
<translation>Engine</translation>
</message>
<message>
<source>Forecasts by: {predictor}.</source>
<translation>Vorhersagen von: {predictor}.</translation>
</message>
<message>
<source>waiting ≤ {time}</source>
<translation>Warten ≤ {time}</translation>
</message>
<message>
<source>waiting</source>
<translation>Warten</translation>
</message>
</context>
<context>
<name>EngineSession</name>
<message>
<source>Back to the embedded model</source>
<translation>Zurück zum eingebauten Modell</translation>
</message>
<message>
<source>Back to {name}</source>
<translation>Zurück zu {name}</translation>
</message>
<message>
<source>Loading was cancelled.</source>
<translation>Das Laden wurde abgebrochen.</translation>
</message>
<message>
<source>Memory is free again, so the cache has grown.</source>
<translation>Es ist wieder Speicher frei; der Cache ist gewachsen.</translation>
</message>
<message>
<source>Start again and continue</source>
<translation>Neu starten und fortsetzen</translation>
</message>
<message>
<source>Try again</source>
<translation>Noch einmal</translation>
</message>
<message>
<source>Try with half the cache</source>
<translation>Mit halbem Cache versuchen</translation>
</message>
<message>
<source>Start again</source>
<translation>Neu starten</translation>
</message>
<message>
<source>Keep waiting</source>
<translation>Weiter warten</translation>
</message>
</context>
<context>
<name>ExpertMap</name>
<message>
<source>Map of the experts in memory</source>
<translation>Karte der Experten im Speicher</translation>
</message>
<message>
<source>Layer {layer}, expert {expert}</source>
<translation>Schicht {layer}, Experte {expert}</translation>
</message>
<message>
<source>not in memory</source>
<translation>nicht im Speicher</translation>
</message>
<message>
<source>in memory</source>
<translation>im Speicher</translation>
</message>
<message>
<source>being read</source>
<translation>wird gelesen</translation>
</message>
<message>
<source>held by the layer in progress</source>
<translation>von der laufenden Schicht festgehalten</translation>
</message>
<message>
<source>just used, a hit</source>
<translation>eben benutzt, Treffer</translation>
</message>
<message>
<source>just used, late</source>
<translation>eben benutzt, verspätet</translation>
</message>
<message>
<source>just used, a miss</source>
<translation>eben benutzt, gefehlt</translation>
</message>
<message>
<source>computed by the processor</source>
<translation>vom Prozessor berechnet</translation>
</message>
<message>
<source>used by {n} of {tokens}</source>
<translation>benutzt von {n} von {tokens}</translation>
</message>
<message>
<source>No map</source>
<translation>Keine Karte</translation>
</message>
<message>
<source>{layers} layers of {experts} experts, {resident} experts in memory</source>
<translation>{layers} Schichten mit {experts} Experten, {resident} Experten im Speicher</translation>
</message>
</context>
<context>
<name>Figures</name>
<message>
<source>token/s</source>
<translation>Token/s</translation>
</message>
<message>
<source>hits</source>
<translation>Treffer</translation>
</message>
<message>
<source>late</source>
<translation>verspätet</translation>
</message>
<message>
<source>GB/s read</source>
<translation>GB/s gelesen</translation>
</message>
<message>
<source>drafts: {right} of {n} were right</source>
<translation>Entwürfe: {right} von {n} waren richtig</translation>
</message>
<message>
<source>{file} from the file, {ram} from memory</source>
<translation>{file} aus der Datei, {ram} aus dem Arbeitsspeicher</translation>
</message>
<message>
<source>the processor computed {share} of {n} that the device lacked</source>
<translation>der Prozessor berechnete {share} von {n}, die dem Gerät fehlten</translation>
</message>
<message>
<source>misses</source>
<translation>gefehlt</translation>
</message>
<message>
<source>How fast the answer is written. A token is about three quarters of a word.
More is better. A larger cache, a faster drive and a smaller model raise it.</source>
<translation>Wie schnell die Antwort geschrieben wird. Ein Token ist etwa drei Viertel eines Wortes.
Mehr ist besser. Ein größerer Cache, ein schnelleres Laufwerk und ein kleineres Modell erhöhen es.</translation>
</message>
<message>
<source>Experts that were in memory when they were needed.
More is better. A larger cache raises it.</source>
<translation>Experten, die im Speicher waren, als sie gebraucht wurden.
Mehr ist besser. Ein größerer Cache erhöht es.</translation>
</message>
<message>
<source>Experts that were still being read when they were needed: a part of the wait was saved.
Less is better, but late is better than a miss. A faster drive lowers it.</source>
<translation>Experten, die noch gelesen wurden, als sie gebraucht wurden: Ein Teil des Wartens war gespart.
Weniger ist besser, aber spät ist besser als gar nicht. Ein schnelleres Laufwerk senkt es.</translation>
</message>
<message>
<source>Present read bandwidth of the drive, and the highest measured on this machine.
Close to the highest means that the drive is the limit.</source>
<translation>Die Leserate des Laufwerks jetzt, und die höchste, die auf diesem Rechner gemessen wurde.
Nahe an der höchsten heißt: Das Laufwerk ist die Grenze.</translation>
</message>
<message>
<source>Experts that were not in memory when they were needed. The answer waits until they are read.
Less is better. A larger cache or a better method lowers it.</source>
<translation>Experten, die nicht im Speicher waren, als sie gebraucht wurden. Die Antwort wartet, bis sie gelesen sind.
Weniger ist besser. Ein größerer Cache oder ein besseres Verfahren senkt es.</translation>
</message>
<message>
<source>waiting</source>
<translation>Warten</translation>
</message>
<message>
<source>Share of the time in which the answer waited for experts.
Less is better. A larger cache and a faster drive lower it.</source>
<translation>Der Teil der Zeit, in dem die Antwort auf Experten wartete.
Weniger ist besser. Ein größerer Cache und ein schnelleres Laufwerk senken ihn.</translation>
</message>
<message>
<source>prefetches useful</source>
<translation>vorab nützlich</translation>
</message>
<message>
<source>Experts that were read before they were needed, and then were needed.
More is better: each one saved a wait.</source>
<translation>Experten, die im Voraus gelesen und dann gebraucht wurden.
Mehr ist besser: Jeder hat ein Warten gespart.</translation>
</message>
<message>
<source>prefetches wasted</source>
<translation>vorab vergeblich</translation>
</message>
<message>
<source>Experts that were read ahead but evicted before anything needed them.
Less is better: each one kept the drive busy for nothing.</source>
<translation>Experten, die im Voraus gelesen und verdrängt wurden, ehe etwas sie brauchte.
Weniger ist besser: Jeder hat das Laufwerk umsonst beschäftigt.</translation>
</message>
<message>
<source>of {limit} GB/s</source>
<translation>von {limit} GB/s</translation>
</message>
</context>
<context>
<name>FileFold</name>
<message>
<source>… and {rest} more</source>
<translation>… und {rest} mehr</translation>
</message>
<message>
<source>image</source>
<translation>Bild</translation>
</message>
<message>
<source>scaled down</source>
<translation>verkleinert</translation>
</message>
<message>
<source>beginning only</source>
<translation>nur der Anfang</translation>
</message>
<message>
<source>Attached: {file}</source>
<translation>Angehängt: {file}</translation>
</message>
</context>
<context>
<name>FindBar</name>
<message>
<source>Find in this chat</source>
<translation>In diesem Chat suchen</translation>
</message>
<message>
<source>Previous place (Shift+Enter)</source>
<translation>Vorige Stelle (Umschalt+Eingabe)</translation>
</message>
<message>
<source>Next place (Enter)</source>
<translation>Nächste Stelle (Eingabe)</translation>
</message>
<message>
<source>Close the search (Esc)</source>
<translation>Die Suche schließen (Esc)</translation>
</message>
<message>
<source>Nothing found.</source>
<translation>Nichts gefunden.</translation>
</message>
<message>
<source>{n} of {all}</source>
<translation>{n} von {all}</translation>
</message>
</context>
<context>
<name>GetPage</name>
<message>
<source>My models</source>
<translation>Meine Modelle</translation>
</message>
<message>
<source>Back to the chat (Esc)</source>
<translation>Zurück zum Chat (Esc)</translation>
</message>
<message>
<source>Asking the server</source>
<translation>Der Server wird gefragt</translation>
</message>
<message>
<source>Change…</source>
<translation>Ändern …</translation>
</message>
<message>
<source>Change the folder that downloads go to</source>
<translation>Den Ordner für Downloads ändern</translation>
</message>
<message>
<source>Download</source>
<translation>Herunterladen</translation>
</message>
<message>
<source>{host}, or the server of an address, is contacted only for your searches and downloads.</source>
<translation>{host} oder der Server einer Adresse wird nur für Ihre Suchen und Downloads angesprochen.</translation>
</message>
<message>
<source>Words, owner/name, or the address of a GGUF file</source>
<translation>Wörter, Besitzer/Name oder die Adresse einer GGUF-Datei</translation>
</message>
<message>
<source>Search models to download</source>
<translation>Modelle zum Herunterladen suchen</translation>
</message>
<message>
<source>Search</source>
<translation>Suchen</translation>
</message>
<message>
<source>Back to the list</source>
<translation>Zurück zur Liste</translation>
</message>
<message>
<source>Show them</source>
<translation>Zeigen</translation>
</message>
<message>
<source>Show the models on this computer</source>
<translation>Die Modelle auf diesem Rechner zeigen</translation>
</message>
<message>
<source>Measure this computer</source>
<translation>Diesen Rechner messen</translation>
</message>
<message>
<source>Measures drive and memory for two seconds, to forecast the speeds.</source>
<translation>Misst zwei Sekunden lang Laufwerk und Speicher, um die Geschwindigkeiten vorherzusagen.</translation>
</message>
<message>
<source>Models that can be downloaded</source>
<translation>Modelle zum Herunterladen</translation>
</message>
<message>
<source>Get models</source>
<translation>Modelle holen</translation>
</message>
<message>
<source>Downloads</source>
<translation>Downloads</translation>
</message>
<message>
<source>Then it is asked again by itself.</source>
<translation>Dann wird von selbst noch einmal gefragt.</translation>
</message>
<message>
<source>Show files</source>
<translation>Dateien zeigen</translation>
</message>
<message>
<source>Open</source>
<translation>Öffnen</translation>
</message>
<message>
<source>Repositories with “{words}”, the most used first.</source>
<translation>Repositorys mit „{words}“, die meistgenutzten zuerst.</translation>
</message>
<message>
<source>Models that run well through the cache. The list is of {date}; what each would do here is computed on this computer.</source>
<translation>Modelle, die gut über den Cache laufen. Die Liste ist vom {date}; was jedes hier leisten würde, wird auf diesem Rechner berechnet.</translation>
</message>
<message>
<source>{models} on this computer already.</source>
<translation>{models} schon auf diesem Rechner.</translation>
</message>
<message>
<source>{models} on this computer already ({programs}).</source>
<translation>{models} schon auf diesem Rechner ({programs}).</translation>
</message>
<message>
<source>{trouble} The list of models needs no network, but a search and a download do.</source>
<translation>{trouble} Die Liste der Modelle braucht kein Netz, eine Suche und ein Download schon.</translation>
</message>
<message>
<source>Asking…</source>
<translation>Wird gefragt …</translation>
</message>
<message>
<source>Reading the header of the file to know more…</source>
<translation>Der Kopf der Datei wird gelesen, um mehr zu wissen …</translation>
</message>
<message>
<source>Judged by its size and by another file of this repository.</source>
<translation>Beurteilt nach der Größe und nach einer anderen Datei dieses Repositorys.</translation>
</message>
<message>
<source>It sees images: a second file of {size} comes with it.</source>
<translation>Es sieht Bilder: Eine zweite Datei von {size} kommt mit.</translation>
</message>
<message>
<source>{host} has no GGUF model with “{words}” in its name.</source>
<translation>{host} hat kein GGUF-Modell mit „{words}“ im Namen.</translation>
</message>
<message>
<source>The list has no model with these words. Press Enter to search {host}.</source>
<translation>Die Liste hat kein Modell mit diesen Wörtern. Die Eingabetaste sucht auf {host}.</translation>
</message>
<message>
<source>Show its files, and what each would do here, before anything is fetched.</source>
<translation>Zeigt seine Dateien und was jede hier leisten würde, bevor etwas geholt wird.</translation>
</message>
<message>
<source>{model}: {size}.</source>
<extracomment>A model and the size of its download, as in &quot;Qwen3 30B: 17.3 GiB.&quot;</extracomment>
<translation>{model}: {size}.</translation>
</message>
<message>
<source>Its numbers are estimated, the file was not read.</source>
<translation>Die Zahlen sind geschätzt, die Datei wurde nicht gelesen.</translation>
</message>
<message>
<source>Suggested for this computer: the largest of the list that writes faster than people read.</source>
<translation>Für diesen Rechner vorgeschlagen: das größte der Liste, das schneller schreibt, als man liest.</translation>
</message>
<message>
<source>Suggested for this computer: the largest of the list that fits in its memory.</source>
<translation>Für diesen Rechner vorgeschlagen: das größte der Liste, das in seinen Speicher passt.</translation>
</message>
<message>
<source>Suggested for this computer: the fastest of the list here.</source>
<translation>Für diesen Rechner vorgeschlagen: das hier schnellste der Liste.</translation>
</message>
<message>
<source>{layers} layers of {experts} experts, {used} used: a token reads {size}.</source>
<translation>{layers} Schichten mit je {experts} Experten, {used} davon benutzt: Ein Token liest {size}.</translation>
</message>
<message>
<source>It sees images, with a second file that comes with it.</source>
<translation>Es sieht Bilder, mit einer zweiten Datei, die mitkommt.</translation>
</message>
<message>
<source>{repository}, licence {licence}.</source>
<translation>{repository}, Lizenz {licence}.</translation>
</message>
<message>
<source>Compared with the file on {date}.</source>
<translation>Am {date} mit der Datei verglichen.</translation>
</message>
<message>
<source>Into {folder}</source>
<translation>Nach {folder}</translation>
</message>
<message>
<source>Folder that downloads go to</source>
<translation>Ordner für Downloads</translation>
</message>
<message>
<source>Description</source>
<translation>Beschreibung</translation>
</message>
<message>
<source>Asks the hub what this model is and can do.</source>
<translation>Fragt den Hub, was dieses Modell ist und kann.</translation>
</message>
<message>
<source>Made of {model}.</source>
<translation>Aus {model} gemacht.</translation>
</message>
<message>
<source>Licence {licence}.</source>
<translation>Lizenz {licence}.</translation>
</message>
<message>
<source>Its page says: “{text}”</source>
<translation>Seine Seite sagt: „{text}“</translation>
</message>
<message>
<source>It sees pictures.</source>
<translation>Es sieht Bilder.</translation>
</message>
<message>
<source>It can think before it answers.</source>
<translation>Es kann vor der Antwort nachdenken.</translation>
</message>
<message>
<source>It can call tools.</source>
<translation>Es kann Werkzeuge aufrufen.</translation>
</message>
<message>
<source>Its page could not be read.</source>
<translation>Seine Seite konnte nicht gelesen werden.</translation>
</message>
<message>
<source>Its page says nothing of it.</source>
<translation>Seine Seite sagt nichts darüber.</translation>
</message>
<message>
<source>The repository is gated: accept its conditions on its page in a browser, and enter a token of the same account below.</source>
<translation>Das Repository ist zugangsbeschränkt: Nehmen Sie seine Bedingungen auf seiner Seite im Browser an, und geben Sie unten ein Token desselben Kontos ein.</translation>
</message>
</context>
<context>
<name>LearningGroup</name>
<message>
<source>Learning from your chats</source>
<translation>Lernen aus den eigenen Chats</translation>
</message>
<message>
<source>Record which experts my chats use, and learn from it</source>
<translation>Aufzeichnen, welche Experten meine Chats nutzen, und daraus lernen</translation>
</message>
<message>
<source>The recordings stay on this computer. They hold a number in place of each word, which the model can turn back, so they are as private as your chats. While you do not use the model, this computer learns from them which experts will be needed next. Answers stay the same, but may come faster.</source>
<translation>Die Aufzeichnungen bleiben auf diesem Rechner. Sie enthalten statt jedes Wortes eine Zahl, die das Modell zurückverwandeln kann, sind also so privat wie Ihre Chats. Während Sie das Modell nicht benutzen, lernt dieser Rechner aus ihnen, welche Experten als nächste gebraucht werden. Die Antworten bleiben gleich, kommen aber vielleicht schneller.</translation>
</message>
<message>
<source>Progress of training</source>
<translation>Fortschritt des Lernens</translation>
</message>
<message>
<source>Delete all recordings</source>
<translation>Alle Aufzeichnungen löschen</translation>
</message>
<message>
<source>The engine is not running.</source>
<translation>Die Engine läuft nicht.</translation>
</message>
<message>
<source>There are no recordings.</source>
<translation>Es gibt keine Aufzeichnungen.</translation>
</message>
<message>
<source>The recordings take {size} on this computer.</source>
<translation>Die Aufzeichnungen belegen {size} auf diesem Computer.</translation>
</message>
<message>
<source>The recordings take {size} on this computer. Of each model at most {most} are kept.</source>
<translation>Die Aufzeichnungen belegen {size} auf diesem Computer. Von jedem Modell werden höchstens {most} behalten.</translation>
</message>
</context>
<context>
<name>LeftOutLine</name>
<message>
<source>The model no longer sees what is above this line, except the beginning of the first question.</source>
<translation>Was über dieser Linie steht, sieht das Modell nicht mehr, außer dem Anfang der ersten Frage.</translation>
</message>
</context>
<context>
<name>LibraryPage</name>
<message>
<source>{model} has arrived.</source>
<translation>{model} ist da.</translation>
</message>
<message>
<source>Open it</source>
<translation>Öffnen</translation>
</message>
<message>
<source>{file} was deleted or moved. You can go on with it now, but it cannot be loaded again.</source>
<translation>{file} wurde gelöscht oder verschoben. Jetzt geht es damit noch weiter, aber es kann nicht noch einmal geladen werden.</translation>
</message>
</context>
<context>
<name>LibraryView</name>
<message>
<source>Search models</source>
<translation>Modelle suchen</translation>
</message>
<message>
<source>Folders…</source>
<translation>Ordner …</translation>
</message>
<message>
<source>Folders of models</source>
<translation>Ordner mit Modellen</translation>
</message>
<message>
<source>Back to the chat (Esc)</source>
<translation>Zurück zum Chat (Esc)</translation>
</message>
<message>
<source>Measure this machine</source>
<translation>Diesen Rechner messen</translation>
</message>
<message>
<source>Measure this machine again; it takes about two seconds.</source>
<translation>Diesen Rechner noch einmal messen; das dauert etwa zwei Sekunden.</translation>
</message>
<message>
<source>Get models…</source>
<translation>Modelle holen …</translation>
</message>
<message numerus="yes">
<source>Getting %n model(s)…</source>
<translation>
<numerusform>%n Modell wird geholt …</numerusform>
<numerusform>%n Modelle werden geholt …</numerusform>
</translation>
</message>
<message numerus="yes">
<source>%n download(s) stopped…</source>
<translation>
<numerusform>%n Download angehalten …</numerusform>
<numerusform>%n Downloads angehalten …</numerusform>
</translation>
</message>
<message>
<source>Models</source>
<translation>Modelle</translation>
</message>
<message>
<source>Add a folder…</source>
<translation>Ordner hinzufügen …</translation>
</message>
<message>
<source>Remove from the list</source>
<translation>Aus der Liste entfernen</translation>
</message>
<message>
<source>Looking through the folders…</source>
<translation>Die Ordner werden durchgesehen …</translation>
</message>
<message>
<source>No model has these words.</source>
<translation>Kein Modell enthält diese Wörter.</translation>
</message>
<message>
<source>There are no models yet. Add a folder, or drop one or a GGUF file on the window.</source>
<translation>Noch keine Modelle. Einen Ordner hinzufügen, oder einen Ordner oder eine GGUF-Datei auf das Fenster ziehen.</translation>
</message>
<message>
<source>Measuring this machine…</source>
<translation>Dieser Rechner wird gemessen …</translation>
</message>
<message>
<source>drive {drive} GB/s, memory {memory} GB/s</source>
<translation>Laufwerk {drive} GB/s, Speicher {memory} GB/s</translation>
</message>
<message>
<source>Add a folder of models</source>
<translation>Einen Ordner mit Modellen hinzufügen</translation>
</message>
</context>
<context>
<name>LoadingStrip</name>
<message>
<source>{words}…</source>
<translation>{words} …</translation>
</message>
</context>
<context>
<name>MainWindow</name>
<message>
<source>Open a model</source>
<translation>Ein Modell öffnen</translation>
</message>
<message>
<source>The last window ended while “{chat}” was being answered. What was written until then is here.</source>
<translation>Das letzte Fenster endete, während „{chat}“ beantwortet wurde. Was bis dahin geschrieben war, ist hier.</translation>
</message>
<message>
<source>Continue</source>
<translation>Fortsetzen</translation>
</message>
<message>
<source>Reset all settings?</source>
<translation>Alle Einstellungen zurücksetzen?</translation>
</message>
<message>
<source>Chats, models and measurements are kept.</source>
<translation>Chats, Modelle und Messungen bleiben erhalten.</translation>
</message>
<message>
<source>Reset</source>
<translation>Zurücksetzen</translation>
</message>
<message>
<source>Keep them</source>
<translation>Behalten</translation>
</message>
<message>
<source>Show the report</source>
<translation>Den Bericht zeigen</translation>
</message>
</context>
<context>
<name>MemoryBar</name>
<message>
<source>Memory</source>
<translation>Speicher</translation>
</message>
<message>
<source>always needed</source>
<translation>stets gebraucht</translation>
</message>
<message>
<source>experts</source>
<translation>Experten</translation>
</message>
<message>
<source>other programs</source>
<translation>andere Programme</translation>
</message>
<message>
<source>free</source>
<translation>frei</translation>
</message>
</context>
<context>
<name>MessageEditor</name>
<message>
<source>Cancel</source>
<translation>Abbrechen</translation>
</message>
<message>
<source>Leave it as it is</source>
<translation>So lassen, wie es ist</translation>
</message>
</context>
<context>
<name>ModeSwitch</name>
<message>
<source>Automatic</source>
<translation>Automatisch</translation>
</message>
<message>
<source>Automatic engine settings</source>
<translation>Automatische Engine-Einstellungen</translation>
</message>
<message>
<source>The cache uses the free memory, and the method follows from measurements during the answers.</source>
<translation>Der Cache nutzt den freien Speicher, und die Methode ergibt sich aus Messungen während der Antworten.</translation>
</message>
<message>
<source>Manual</source>
<translation>Von Hand</translation>
</message>
<message>
<source>Engine settings by hand</source>
<translation>Engine-Einstellungen von Hand</translation>
</message>
<message>
<source>You set the cache rate, the method and the context.</source>
<translation>Cache-Anteil, Verfahren und Kontext sind selbst einzustellen.</translation>
</message>
</context>
<context>
<name>ModelButton</name>
<message>
<source>Choose a model</source>
<translation>Modell wählen</translation>
</message>
<message>
<source>Model: {model}</source>
<translation>Modell: {model}</translation>
</message>
<message>
<source>All models</source>
<translation>Alle Modelle</translation>
</message>
<message>
<source>Get models…</source>
<translation>Modelle holen …</translation>
</message>
<message>
<source>Open a GGUF file…</source>
<translation>GGUF-Datei öffnen …</translation>
</message>
</context>
<context>
<name>ModelReport</name>
<message>
<source>Report on this model</source>
<translation>Bericht über dieses Modell</translation>
</message>
<message>
<source>{name} is measured on this machine: three turns of a chat that is made up for it, its speed at two cache rates, and whether it computes the same numbers as stock llama.cpp. This takes less than five minutes.</source>
<translation>{name} wird auf diesem Rechner gemessen: drei Fragen eines dafür erfundenen Chats, seine Geschwindigkeit bei zwei Cache-Anteilen, und ob es dieselben Zahlen berechnet wie unverändertes llama.cpp. Das dauert weniger als fünf Minuten.</translation>
</message>
<message>
<source>The model is freed meanwhile, and loaded again at the end. Your chats are not read. The report holds no names or folders and is sent nowhere: you read it here, then copy or save it.</source>
<translation>Das Modell wird solange freigegeben und am Ende wieder geladen. Ihre Chats werden nicht gelesen. Der Bericht enthält weder Namen noch Ordner und wird nirgendwohin gesendet: Sie lesen ihn hier und kopieren oder speichern ihn dann.</translation>
</message>
<message>
<source>Progress</source>
<translation>Fortschritt</translation>
</message>
<message>
<source>Report</source>
<translation>Bericht</translation>
</message>
<message>
<source>Copy the report</source>
<translation>Bericht kopieren</translation>
</message>
<message>
<source>Save…</source>
<translation>Speichern …</translation>
</message>
<message>
<source>Measure</source>
<translation>Messen</translation>
</message>
<message>
<source>Stop</source>
<translation>Anhalten</translation>
</message>
<message>
<source>Close</source>
<translation>Schließen</translation>
</message>
<message>
<source>Freeing the model.</source>
<translation>Das Modell wird freigegeben.</translation>
</message>
<message>
<source>Stopping.</source>
<translation>Wird angehalten.</translation>
</message>
<message>
<source>The process for the report did not start.</source>
<translation>Der Prozess für den Bericht ist nicht gestartet.</translation>
</message>
<message>
<source>The report is complete, and all numbers are those of llama.cpp.</source>
<translation>Der Bericht ist vollständig, und alle Zahlen sind die von llama.cpp.</translation>
</message>
<message>
<source>It was stopped. The report holds what was measured before.</source>
<translation>Angehalten. Der Bericht enthält, was bis dahin gemessen wurde.</translation>
</message>
<message>
<source>Something is missing or different; the report says what.</source>
<translation>Etwas fehlt oder weicht ab; der Bericht sagt, was.</translation>
</message>
<message>
<source>The report is in the clipboard.</source>
<translation>Der Bericht ist in der Zwischenablage.</translation>
</message>
<message>
<source>Save the report</source>
<translation>Bericht speichern</translation>
</message>
<message>
<source>Text (*.txt)</source>
<translation>Text (*.txt)</translation>
</message>
<message>
<source>The report could not be saved: {reason}.</source>
<translation>Der Bericht konnte nicht gespeichert werden: {reason}.</translation>
</message>
<message>
<source>The report is saved.</source>
<translation>Der Bericht ist gespeichert.</translation>
</message>
</context>
<context>
<name>PackDesk</name>
<message>
<source>The experts are being packed: {share}.</source>
<translation>Die Experten werden gepackt: {share}.</translation>
</message>
<message>
<source>Packing the experts would make answers about {gain} times as fast, but needs {size} of the drive, and {free} are free.</source>
<translation>Gepackte Experten würden Antworten etwa {gain}-mal so schnell machen, brauchen aber {size} auf dem Laufwerk, und {free} sind frei.</translation>
</message>
<message>
<source>Packing the experts into a second file of {size} would make answers about {gain} times as fast, by what was measured here.</source>
<translation>Die Experten in eine zweite Datei von {size} zu packen würde Antworten nach den Messungen hier etwa {gain}-mal so schnell machen.</translation>
</message>
<message>
<source>{folder} is on the drive where the pack would lie anyway.</source>
<translation>{folder} ist auf dem Laufwerk, auf dem das Paket ohnehin läge.</translation>
</message>
<message>
<source>Packing was stopped. What was written is used when it is wanted again.</source>
<translation>Das Packen wurde angehalten. Was geschrieben wurde, wird genutzt, wenn es wieder gewünscht ist.</translation>
</message>
<message>
<source>Delete it</source>
<translation>Löschen</translation>
</message>
<message>
<source>The experts are packed: about {gain} times as fast is to be expected.</source>
<translation>Die Experten sind gepackt: Etwa {gain}-mal so schnell ist zu erwarten.</translation>
</message>
</context>
<context>
<name>Page</name>
<message>
<source>Back to the chat (Esc)</source>
<translation>Zurück zum Chat (Esc)</translation>
</message>
</context>
<context>
<name>PanelParts</name>
<message>
<source>Now</source>
<translation>Jetzt</translation>
</message>
<message>
<source>Use the cache that would help</source>
<translation>Den Cache einstellen, der helfen würde</translation>
</message>
<message>
<source>Show the present again</source>
<translation>Wieder die Gegenwart zeigen</translation>
</message>
<message>
<source>Pause the panel</source>
<translation>Die Ansicht anhalten</translation>
</message>
<message>
<source>Save or copy</source>
<translation>Speichern oder kopieren</translation>
</message>
<message>
<source>Counters</source>
<translation>Zähler</translation>
</message>
<message>
<source>Hits, misses, prefetches and the drive, in figures</source>
<translation>Treffer, Fehlgriffe, Vorgriffe und das Laufwerk in Zahlen</translation>
</message>
<message>
<source>Back beside the chat (Ctrl+Shift+E)</source>
<translation>Zurück neben den Chat (Strg+Umschalt+E)</translation>
</message>
<message>
<source>Use the whole window (Ctrl+Shift+E)</source>
<translation>Das ganze Fenster nutzen (Strg+Umschalt+E)</translation>
</message>
<message>
<source>Back into the main window</source>
<translation>Zurück ins Hauptfenster</translation>
</message>
<message>
<source>Open as a window</source>
<translation>Als Fenster öffnen</translation>
</message>
<message>
<source>computed by the processor</source>
<translation>vom Prozessor berechnet</translation>
</message>
<message>
<source>in memory</source>
<translation>im Speicher</translation>
</message>
<message>
<source>being read</source>
<translation>wird gelesen</translation>
</message>
<message>
<source>used at once</source>
<translation>sofort genutzt</translation>
</message>
<message>
<source>used late</source>
<translation>verspätet genutzt</translation>
</message>
<message>
<source>missing</source>
<translation>fehlt</translation>
</message>
<message>
<source>held</source>
<translation>festgehalten</translation>
</message>
<message>
<source>not in memory</source>
<translation>nicht im Speicher</translation>
</message>
<message>
<source>stronger: used more often</source>
<translation>kräftiger: öfter benutzt</translation>
</message>
<message>
<source>The stronger the colour, the more often this answer used the expert. Good use of memory: the strong ones are in memory.</source>
<translation>Je kräftiger die Farbe, desto öfter hat diese Antwort den Experten benutzt. Gut genutzt ist der Speicher, wenn die kräftigen darin sind.</translation>
</message>
<message>
<source>token {number} of {all}</source>
<translation>Token {number} von {all}</translation>
</message>
<message>
<source>In memory: ready for use.
Being read: on its way from the drive.
Used at once (a hit): just used, and in memory. Many are good.
Used late: just used, while it was still being read. A part of the wait was saved.
Missing (a miss): just used, and not in memory. The answer waited; few are good.
Held: stays until the layer in progress is done.</source>
<translation>Im Speicher: zum Gebrauch bereit.
Wird gelesen: auf dem Weg vom Laufwerk.
Sofort genutzt (ein Treffer): gerade gebraucht und im Speicher. Viele sind gut.
Verspätet genutzt: gerade gebraucht, während er noch gelesen wurde. Ein Teil der Wartezeit wurde gespart.
Fehlt: gerade gebraucht und nicht im Speicher. Die Antwort wartete; wenige sind gut.
Festgehalten: bleibt, bis die laufende Schicht fertig ist.</translation>
</message>
<message>
<source>{size} for experts</source>
<translation>{size} für Experten</translation>
</message>
<message>
<source>for experts: asked for {asked}, in use {force}</source>
<translation>für Experten: verlangt {asked}, in Gebrauch {force}</translation>
</message>
<message>
<source>Use a cache of {size}</source>
<translation>Cache von {size} verwenden</translation>
</message>
<message>
<source>Use {size} (changes to Manual)</source>
<translation>{size} nutzen (stellt auf Manuell)</translation>
</message>
<message>
<source>Tables (*.csv)</source>
<translation>Tabellen (*.csv)</translation>
</message>
<message>
<source>Pictures (*.png)</source>
<translation>Bilder (*.png)</translation>
</message>
<message>
<source>Save the tokens as CSV…</source>
<translation>Die Token als CSV speichern …</translation>
</message>
<message>
<source>tokens.csv</source>
<translation>token.csv</translation>
</message>
<message>
<source>Save the experts as CSV…</source>
<translation>Die Experten als CSV speichern …</translation>
</message>
<message>
<source>experts.csv</source>
<translation>experten.csv</translation>
</message>
<message>
<source>Save the picture as PNG…</source>
<translation>Das Bild als PNG speichern …</translation>
</message>
<message>
<source>engine.png</source>
<translation>engine.png</translation>
</message>
<message>
<source>Copy the picture</source>
<translation>Das Bild kopieren</translation>
</message>
<message>
<source>Save</source>
<translation>Speichern</translation>
</message>
<message>
<source>State</source>
<translation>Zustand</translation>
</message>
<message>
<source>What is in memory and what was just used</source>
<translation>Was im Speicher ist und was eben benutzt wurde</translation>
</message>
<message>
<source>Use</source>
<translation>Nutzung</translation>
</message>
<message>
<source>How often this answer used each expert</source>
<translation>Wie oft diese Antwort jeden Experten benutzt hat</translation>
</message>
<message>
<source>Map: {view}</source>
<translation>Karte: {view}</translation>
</message>
<message>
<source>Engine</source>
<translation>Engine</translation>
</message>
<message>
<source>Experts by layer</source>
<translation>Experten je Schicht</translation>
</message>
<message>
<source>A row for each layer of the model, a cell for each of its experts.
The bars at the right show how long the answer waited for each layer.</source>
<translation>Eine Zeile für jede Schicht des Modells, eine Zelle für jeden ihrer Experten.
Die Balken rechts zeigen, wie lange die Antwort auf jede Schicht wartete.</translation>
</message>
<message>
<source>The longest wait of one layer in this answer.
Less is better. A larger cache and a faster drive lower it.</source>
<translation>Das längste Warten auf eine Schicht in dieser Antwort.
Weniger ist besser. Ein größerer Cache und ein schnelleres Laufwerk senken es.</translation>
</message>
<message>
<source>compute</source>
<translation>Rechnen</translation>
</message>
<message>
<source>waiting for experts</source>
<translation>Warten auf Experten</translation>
</message>
<message>
<source>unexplained</source>
<translation>unerklärt</translation>
</message>
<message>
<source>Compute: the processor calculates. A smaller model lowers it.
Waiting for experts: they were not in memory. A larger cache lowers it.
Unexplained: neither of both, most often other programs. Closing them lowers it.</source>
<translation>Rechnen: Der Prozessor rechnet. Ein kleineres Modell senkt es.
Warten auf Experten: Sie waren nicht im Speicher. Ein größerer Cache senkt es.
Ungeklärt: keines von beiden, meist andere Programme. Sie zu schließen senkt es.</translation>
</message>
<message>
<source>Tokens</source>
<translation>Token</translation>
</message>
<message>
<source>Dense part: used by every token, always in memory.
Experts: the cache. More means less waiting.
Other programs: all that this model does not use.
Free: what a larger cache could use.</source>
<translation>Dichter Teil: jedes Token braucht ihn, immer im Speicher.
Experten: der Cache. Mehr heißt weniger Warten.
Andere Programme: alles, was dieses Modell nicht nutzt.
Frei: was ein größerer Cache nutzen könnte.</translation>
</message>
<message>
<source>Memory</source>
<translation>Speicher</translation>
</message>
<message>
<source>Your first answer. In the map, each row is a layer of the model and each cell an expert; coloured cells are in memory. The red bars beside it show how long each layer waited. Below, each bar is one token of the answer; click one to look back. Point at anything to read what it means.</source>
<translation>Ihre erste Antwort. In der Karte ist jede Zeile eine Schicht des Modells und jede Zelle ein Experte; farbige Zellen sind im Speicher. Die roten Balken daneben zeigen, wie lange jede Schicht wartete. Darunter ist jeder Balken ein Token der Antwort; ein Klick blickt zurück. Zeigen Sie auf etwas, um zu lesen, was es bedeutet.</translation>
</message>
<message>
<source>Got it</source>
<translation>Verstanden</translation>
</message>
<message>
<source>Close the hint</source>
<translation>Den Hinweis schließen</translation>
</message>
</context>
<context>
<name>PanelWindow</name>
<message>
<source>Engine – Outrider</source>
<translation>Engine – Outrider</translation>
</message>
</context>
<context>
<name>PictureButton</name>
<message>
<source>Show {file} large</source>
<translation>{file} groß zeigen</translation>
</message>
</context>
<context>
<name>PlanBar</name>
<message>
<source>Memory plan</source>
<translation>Speicherplan</translation>
</message>
</context>
<context>
<name>Presence</name>
<message>
<source>Open Outrider</source>
<translation>Outrider öffnen</translation>
</message>
<message>
<source>Quit</source>
<translation>Beenden</translation>
</message>
<message>
<source>The answer is ready: {chat}</source>
<translation>Die Antwort ist fertig: {chat}</translation>
</message>
</context>
<context>
<name>PresetDialog</name>
<message>
<source>System prompt and sampling</source>
<translation>System-Prompt und Sampling</translation>
</message>
<message>
<source>System prompt</source>
<translation>System-Prompt</translation>
</message>
<message>
<source>What the model should know or how it should answer</source>
<translation>Was das Modell wissen oder wie es antworten soll</translation>
</message>
<message>
<source>Seed</source>
<translation>Startwert</translation>
</message>
<message>
<source>random</source>
<translation>zufällig</translation>
</message>
<message>
<source>The same seed, question and settings give the same answer; random: another each time.</source>
<translation>Gleicher Startwert, gleiche Frage und gleiche Einstellungen geben die gleiche Antwort; zufällig: jedes Mal eine andere.</translation>
</message>
<message>
<source>Longest answer</source>
<translation>Längste Antwort</translation>
</message>
<message>
<source>any</source>
<translation>beliebig</translation>
</message>
<message>
<source>Tokens after which an answer ends; any: when the model ends it.</source>
<translation>Token, nach denen eine Antwort endet; beliebig: wenn das Modell sie beendet.</translation>
</message>
<message>
<source>Stops</source>
<translation>Stoppwörter</translation>
</message>
<message>
<source>Texts that end an answer, separated by commas; \n is a new line.</source>
<translation>Texte, die eine Antwort beenden, durch Kommas getrennt; \n ist eine neue Zeile.</translation>
</message>
<message>
<source>Sampling: {name}</source>
<translation>Sampling: {name}</translation>
</message>
<message>
<source>This chat</source>
<translation>Diesen Chat</translation>
</message>
<message>
<source>All chats with {model}</source>
<translation>Alle Chats mit {model}</translation>
</message>
<message>
<source>All chats</source>
<translation>Alle Chats</translation>
</message>
<message>
<source>Own presets</source>
<translation>Eigene Voreinstellungen</translation>
</message>
<message>
<source>Sampling</source>
<translation>Sampling</translation>
</message>
<message>
<source>For</source>
<translation>Für</translation>
</message>
<message>
<source>Save as…</source>
<translation>Speichern als …</translation>
</message>
<message>
<source>Delete</source>
<translation>Löschen</translation>
</message>
<message>
<source>Save the preset as</source>
<translation>Die Voreinstellung speichern als</translation>
</message>
<message>
<source>Delete the preset</source>
<translation>Die Voreinstellung löschen</translation>
</message>
<message>
<source>With the context, the cache and the method of {model}</source>
<translation>Mit Kontext, Cache und Verfahren von {model}</translation>
</message>
<message>
<source>Choose a preset of your own</source>
<translation>Eine eigene Voreinstellung wählen</translation>
</message>
<message>
<source>Name of the preset</source>
<translation>Name der Voreinstellung</translation>
</message>
</context>
<context>
<name>RateControl</name>
<message>
<source>Cache rate</source>
<translation>Cache-Anteil</translation>
</message>
<message>
<source>Apply now</source>
<translation>Jetzt anwenden</translation>
</message>
<message>
<source>Use this cache rate now</source>
<translation>Diese Cache-Rate jetzt nutzen</translation>
</message>
<message>
<source>The answer stops, the cache changes, and the answer goes on where it was.</source>
<translation>Die Antwort hält an, der Cache ändert sich, und die Antwort geht dort weiter, wo sie war.</translation>
</message>
<message>
<source>No model</source>
<translation>Kein Modell</translation>
</message>
<message>
<source>No expert cache</source>
<translation>Kein Experten-Cache</translation>
</message>
<message>
<source>A dense model</source>
<translation>Ein dichtes Modell</translation>
</message>
<message>
<source>It has no experts to cache.</source>
<translation>Es hat keine Experten für den Cache.</translation>
</message>
<message>
<source>Demo: cache kept small on purpose</source>
<translation>Vorführung: Cache absichtlich klein</translation>
</message>
<message>
<source>all of it fits in memory</source>
<translation>alles passt in den Speicher</translation>
</message>
<message>
<source>{size}, from the next answer; now {n} experts</source>
<translation>{size}, ab der nächsten Antwort; jetzt {n} Experten</translation>
</message>
<message>
<source>{size}; in force: {n} experts</source>
<translation>{size}; in Kraft: {n} Experten</translation>
</message>
<message>
<source>{words} per layer, {size}</source>
<translation>{words} je Schicht, {size}</translation>
</message>
<message>
<source>{percent} · {n} of {most} experts</source>
<translation>{percent} · {n} von {most} Experten</translation>
</message>
<message>
<source>{n} of the {most} experts of each layer are kept in memory, {size} altogether.
More needs more memory and waits less for the disk.</source>
<translation>{n} der {most} Experten jeder Schicht bleiben im Speicher, zusammen {size}.
Mehr braucht mehr Speicher und wartet weniger auf das Laufwerk.</translation>
</message>
<message>
<source>{size} of memory</source>
<translation>{size} Speicher</translation>
</message>
<message>
<source>about {speed}</source>
<translation>etwa {speed}</translation>
</message>
<message>
<source>{size}, {speed} the last time</source>
<translation>{size}, zuletzt {speed}</translation>
</message>
<message>
<source>{size}, about {speed}</source>
<translation>{size}, etwa {speed}</translation>
</message>
</context>
<context>
<name>RemoteDialog</name>
<message>
<source>Another machine</source>
<translation>Anderer Rechner</translation>
</message>
<message>
<source>Address of the machine</source>
<translation>Adresse des Rechners</translation>
</message>
<message>
<source>Address at which llama.cpp&apos;s rpc server runs there</source>
<translation>Adresse, unter der dort der RPC-Server von llama.cpp läuft</translation>
</message>
<message>
<source>Trust it and use it</source>
<translation>Vertrauen und verwenden</translation>
</message>
<message>
<source>That machine</source>
<translation>Jener Rechner</translation>
</message>
</context>
<context>
<name>SearchField</name>
<message>
<source>Empty the search field</source>
<translation>Das Suchfeld leeren</translation>
</message>
</context>
<context>
<name>SeenDialog</name>
<message>
<source>What the model saw</source>
<translation>Was das Modell sah</translation>
</message>
<message>
<source>The prompt is rendered again, with the present model and the present settings of this chat.</source>
<translation>Der Prompt wird neu erzeugt, mit dem jetzigen Modell und den jetzigen Einstellungen dieses Chats.</translation>
</message>
<message>
<source>Prompt</source>
<translation>Prompt</translation>
</message>
<message>
<source>Copy the prompt</source>
<translation>Prompt kopieren</translation>
</message>
<message>
<source>Answer, as the model wrote it</source>
<translation>Antwort, wie das Modell sie schrieb</translation>
</message>
<message>
<source>Copy the raw answer</source>
<translation>Rohe Antwort kopieren</translation>
</message>
<message>
<source>Waiting for the engine…</source>
<translation>Wartet auf die Engine …</translation>
</message>
<message>
<source>Close</source>
<translation>Schließen</translation>
</message>
</context>
<context>
<name>ServerDialog</name>
<message>
<source>Server of tools</source>
<translation>Werkzeug-Server</translation>
</message>
<message>
<source>A program on this machine</source>
<translation>Ein Programm auf diesem Rechner</translation>
</message>
<message>
<source>An address</source>
<translation>Eine Adresse</translation>
</message>
<message>
<source>Variable</source>
<translation>Variable</translation>
</message>
<message>
<source>Value</source>
<translation>Wert</translation>
</message>
<message>
<source>Header</source>
<translation>Kopfzeile</translation>
</message>
<message>
<source>Name</source>
<translation>Name</translation>
</message>
<message>
<source>Command line</source>
<translation>Befehlszeile</translation>
</message>
<message>
<source>Environment</source>
<translation>Umgebung</translation>
</message>
<message>
<source>Address</source>
<translation>Adresse</translation>
</message>
<message>
<source>Headers</source>
<translation>Kopfzeilen</translation>
</message>
<message>
<source>A server runs with your rights: it can read and change what you can. Add only servers that you trust.</source>
<translation>Ein Server läuft mit Ihren Rechten: Er kann lesen und ändern, was Sie können. Fügen Sie nur Server hinzu, denen Sie vertrauen.</translation>
</message>
<message>
<source>The command line has a quotation mark too few.</source>
<translation>Der Befehlszeile fehlt ein Anführungszeichen.</translation>
</message>
</context>
<context>
<name>ServerPage</name>
<message>
<source>Local server</source>
<translation>Lokaler Server</translation>
</message>
<message>
<source>Address</source>
<translation>Adresse</translation>
</message>
<message>
<source>Copy</source>
<translation>Kopieren</translation>
</message>
<message>
<source>Copy the address</source>
<translation>Die Adresse kopieren</translation>
</message>
<message>
<source>OpenAI&apos;s protocol uses this address, Anthropic&apos;s the same without /v1.</source>
<translation>Das Protokoll von OpenAI nutzt diese Adresse, das von Anthropic dieselbe ohne /v1.</translation>
</message>
<message>
<source>Examples</source>
<translation>Beispiele</translation>
</message>
<message>
<source>An example request</source>
<translation>Eine Beispielanfrage</translation>
</message>
<message>
<source>Example: {name}</source>
<translation>Beispiel: {name}</translation>
</message>
<message>
<source>Copy the example</source>
<translation>Das Beispiel kopieren</translation>
</message>
<message>
<source>Last requests</source>
<translation>Letzte Anfragen</translation>
</message>
<message>
<source>None yet.</source>
<translation>Noch keine.</translation>
</message>
</context>
<context>
<name>ServerSection</name>
<message>
<source>Local server</source>
<translation>Lokaler Server</translation>
</message>
<message>
<source>Programs on this machine can use the loaded model through the protocols of OpenAI, Anthropic and Ollama. Nothing outside this machine can connect unless you allow it below, and a key is needed. Programs share the model&apos;s time with the chat, which keeps most of its speed.</source>
<translation>Programme auf diesem Rechner können das geladene Modell über die Protokolle von OpenAI, Anthropic und Ollama nutzen. Von außerhalb kommt nichts heran, wenn Sie es unten nicht erlauben, und ein Schlüssel ist nötig. Programme teilen sich die Zeit des Modells mit dem Chat, der das meiste seines Tempos behält.</translation>
</message>
<message>
<source>Serve the loaded model</source>
<translation>Das geladene Modell bereitstellen</translation>
</message>
<message>
<source>Serve the loaded model to programs on this machine</source>
<translation>Das geladene Modell für Programme auf diesem Rechner bereitstellen</translation>
</message>
<message>
<source>0: any free port</source>
<translation>0: irgendein freier Port</translation>
</message>
<message>
<source>Key</source>
<translation>Schlüssel</translation>
</message>
<message>
<source>Copy</source>
<translation>Kopieren</translation>
</message>
<message>
<source>Copy the key</source>
<translation>Den Schlüssel kopieren</translation>
</message>
<message>
<source>Renew</source>
<translation>Erneuern</translation>
</message>
<message>
<source>Make another key</source>
<translation>Einen anderen Schlüssel erzeugen</translation>
</message>
<message>
<source>Load the model that a program names</source>
<translation>Das Modell laden, das ein Programm nennt</translation>
</message>
<message>
<source>Any model of the page Models. It takes the place of the chat&apos;s, which is loaded again for the next message.</source>
<translation>Jedes Modell der Seite „Modelle“. Es ersetzt das Modell des Chats, das für die nächste Nachricht wieder geladen wird.</translation>
</message>
<message>
<source>never</source>
<translation>nie</translation>
</message>
<message>
<source> min</source>
<translation> min</translation>
</message>
<message>
<source>Time without a request or message; the next one loads the model again.</source>
<translation>Zeit ohne Anfrage oder Nachricht; die nächste lädt das Modell wieder.</translation>
</message>
<message>
<source>Choose…</source>
<translation>Wählen …</translation>
</message>
<message>
<source>Choose a model for embeddings</source>
<translation>Ein Modell für Embeddings wählen</translation>
</message>
<message>
<source>A small model that turns texts into numbers or ranks documents for programs. It is loaded when it is asked, beside the other one.</source>
<translation>Ein kleines Modell, das für Programme Texte in Zahlen verwandelt oder Dokumente ordnet. Es wird neben dem anderen geladen, wenn es gefragt wird.</translation>
</message>
<message>
<source>None</source>
<translation>Keines</translation>
</message>
<message>
<source>Use no model for embeddings</source>
<translation>Kein Modell für Embeddings benutzen</translation>
</message>
<message>
<source>Let other machines connect</source>
<translation>Andere Rechner zulassen</translation>
</message>
<message>
<source>They call this machine by its address in the network, and need the key.</source>
<translation>Sie rufen diesen Rechner mit seiner Adresse im Netz auf und brauchen den Schlüssel.</translation>
</message>
<message>
<source>Web pages (CORS)</source>
<translation>Webseiten (CORS)</translation>
</message>
<message>
<source>Web pages that may use it (CORS)</source>
<translation>Webseiten, die ihn benutzen dürfen (CORS)</translation>
</message>
<message>
<source>Unload an unused model after</source>
<translation>Unbenutztes Modell entladen nach</translation>
</message>
<message>
<source>Origins of pages in a browser that may ask with the key, with spaces between them; localhost: all pages of this machine.</source>
<translation>Ursprünge (Origins) von Seiten im Browser, die mit dem Schlüssel fragen dürfen, mit Leerzeichen dazwischen; localhost: alle Seiten dieses Rechners.</translation>
</message>
<message>
<source>Port</source>
<translation>Port</translation>
</message>
<message>
<source>Embeddings</source>
<translation>Embeddings</translation>
</message>
<message>
<source>Choose a small model for embeddings</source>
<translation>Ein kleines Modell für Embeddings wählen</translation>
</message>
<message>
<source>none</source>
<translation>keines</translation>
</message>
<message>
<source>On, at {address}.</source>
<translation>An, unter {address}.</translation>
</message>
<message numerus="yes">
<source>%n request(s) so far.</source>
<translation>
<numerusform>Bisher %n Anfrage.</numerusform>
<numerusform>Bisher %n Anfragen.</numerusform>
</translation>
</message>
<message numerus="yes">
<source>%n of them under way.</source>
<translation>
<numerusform>%n davon läuft.</numerusform>
<numerusform>%n davon laufen.</numerusform>
</translation>
</message>
<message>
<source>A program has loaded {model}.</source>
<translation>Ein Programm hat {model} geladen.</translation>
</message>
<message>
<source>No model is in memory.</source>
<translation>Kein Modell ist im Speicher.</translation>
</message>
<message>
<source>Other machines can connect. Nothing is encrypted: whoever can listen in the network reads the key, the requests and the answers.</source>
<translation>Andere Rechner kommen heran. Nichts ist verschlüsselt: Wer im Netz mithören kann, liest den Schlüssel, die Anfragen und die Antworten.</translation>
</message>
<message>
<source>It starts with the engine.</source>
<translation>Er startet mit der Engine.</translation>
</message>
<message>
<source>Off.</source>
<translation>Aus.</translation>
</message>
</context>
<context>
<name>Session</name>
<message>
<source>At temperature 0 all answers would be the same.</source>
<translation>Bei Temperatur 0 wären alle Antworten gleich.</translation>
</message>
<message>
<source>The prompt can be shown when a model is loaded.</source>
<translation>Der Prompt kann gezeigt werden, sobald ein Modell geladen ist.</translation>
</message>
<message>
<source>Open a model first.</source>
<translation>Zuerst ein Modell öffnen.</translation>
</message>
<message>
<source>Try again</source>
<translation>Noch einmal</translation>
</message>
<message>
<source>Send it anyway</source>
<translation>Trotzdem senden</translation>
</message>
<message>
<source>So it was not sent.</source>
<translation>Deshalb wurde nichts gesendet.</translation>
</message>
<message>
<source>Waits until the model is loaded</source>
<translation>Wartet, bis das Modell geladen ist</translation>
</message>
<message>
<source>Waits for the answer in another chat</source>
<translation>Wartet auf die Antwort in einem anderen Chat</translation>
</message>
<message>
<source>Waits for the tools to start: {servers}</source>
<translation>Wartet auf den Start der Werkzeuge: {servers}</translation>
</message>
<message>
<source>This chat is longer than the context of {tokens}. Its middle is left out: the model sees its beginning and its end.</source>
<translation>Dieser Chat ist länger als der Kontext von {tokens}. Seine Mitte wird ausgelassen: Das Modell sieht seinen Anfang und sein Ende.</translation>
</message>
<message>
<source>A program on this machine is answered first</source>
<translation>Zuerst bekommt ein Programm auf diesem Rechner seine Antwort</translation>
</message>
<message>
<source>Loading the model: {share}</source>
<translation>Das Modell wird geladen: {share}</translation>
</message>
<message>
<source>Reading the prompt: {done} of {total}</source>
<translation>Der Prompt wird gelesen: {done} von {total}</translation>
</message>
<message>
<source>This answer is longer than the context of {tokens}, and the model may never come to an end. It can go on without the middle of this chat.</source>
<translation>Diese Antwort ist länger als der Kontext von {tokens}, und das Modell kommt vielleicht nie zu einem Ende. Sie kann ohne die Mitte dieses Chats weitergehen.</translation>
</message>
<message>
<source>The context of {tokens} is full. The answer can go on without the middle of this chat: its beginning and its end are kept.</source>
<translation>Der Kontext von {tokens} ist voll. Die Antwort kann ohne die Mitte dieses Chats weitergehen: Anfang und Ende bleiben.</translation>
</message>
<message>
<source>Leave out the middle and continue</source>
<translation>Die Mitte weglassen und fortsetzen</translation>
</message>
<message>
<source>Stop here</source>
<translation>Hier aufhören</translation>
</message>
<message>
<source>Use a context of {tokens} and continue</source>
<translation>Mit einem Kontext von {tokens} fortfahren</translation>
</message>
<message>
<source>The context has no room for this.</source>
<translation>Dafür reicht der Kontext nicht.</translation>
</message>
</context>
<context>
<name>SettingsPage</name>
<message>
<source>Settings</source>
<translation>Einstellungen</translation>
</message>
<message>
<source>Appearance</source>
<translation>Aussehen</translation>
</message>
<message>
<source>Light</source>
<translation>Hell</translation>
</message>
<message>
<source>Dark</source>
<translation>Dunkel</translation>
</message>
<message>
<source>High contrast</source>
<translation>Hoher Kontrast</translation>
</message>
<message>
<source>Colours</source>
<translation>Farben</translation>
</message>
<message>
<source>Tell when an answer is ready and the window is not active</source>
<translation>Melden, wenn eine Antwort fertig und das Fenster nicht aktiv ist</translation>
</message>
<message>
<source>Keep a closed window in the tray</source>
<translation>Ein geschlossenes Fenster im Infobereich behalten</translation>
</message>
<message>
<source>Size of text</source>
<translation>Schriftgröße</translation>
</message>
<message>
<source>Language</source>
<translation>Sprache</translation>
</message>
<message>
<source>The language changes at the next start.</source>
<translation>Die Sprache wechselt beim nächsten Start.</translation>
</message>
<message>
<source>Engine</source>
<translation>Engine</translation>
</message>
<message>
<source>Engine settings</source>
<translation>Engine-Einstellungen</translation>
</message>
<message>
<source>Engine controls…</source>
<translation>Engine-Regler …</translation>
</message>
<message>
<source>Show the engine controls</source>
<translation>Die Engine-Regler zeigen</translation>
</message>
<message>
<source>The next model starts with the settings made here, in the bar at the top and in the engine controls.</source>
<translation>Das nächste Modell beginnt mit den Einstellungen von hier, aus der Leiste oben und aus den Engine-Reglern.</translation>
</message>
<message>
<source>Models</source>
<translation>Modelle</translation>
</message>
<message>
<source>Folders of models</source>
<translation>Ordner mit Modellen</translation>
</message>
<message>
<source>Add…</source>
<translation>Hinzufügen …</translation>
</message>
<message>
<source>Add a folder of models</source>
<translation>Einen Ordner mit Modellen hinzufügen</translation>
</message>
<message>
<source>Remove</source>
<translation>Entfernen</translation>
</message>
<message>
<source>Remove the folder from the list</source>
<translation>Den Ordner aus der Liste entfernen</translation>
</message>
<message>
<source>The files stay where they are.</source>
<translation>Die Dateien bleiben, wo sie sind.</translation>
</message>
<message>
<source>Change…</source>
<translation>Ändern …</translation>
</message>
<message>
<source>Change the folder that downloads go to</source>
<translation>Den Ordner für Downloads ändern</translation>
</message>
<message>
<source>Folders that are looked through for models:</source>
<translation>Ordner, die nach Modellen durchsucht werden:</translation>
</message>
<message>
<source>Downloads go to</source>
<translation>Downloads kommen nach</translation>
</message>
<message>
<source>None yet. A model that was opened is listed anyway.</source>
<translation>Noch keine. Ein geöffnetes Modell wird auch so aufgeführt.</translation>
</message>
<message>
<source>Folder that downloads go to</source>
<translation>Ordner für Downloads</translation>
</message>
<message>
<source>New chats</source>
<translation>Neue Chats</translation>
</message>
<message>
<source>System prompt and sampling…</source>
<translation>System-Prompt und Sampling …</translation>
</message>
<message>
<source>What new chats begin with</source>
<translation>Womit neue Chats beginnen</translation>
</message>
<message>
<source>For chats with models that have no settings of their own.</source>
<translation>Für Chats mit Modellen, die keine eigenen Einstellungen haben.</translation>
</message>
<message>
<source>Let the model write the titles of new chats when it is idle</source>
<translation>Das Modell Titel neuer Chats schreiben lassen, wenn es nichts zu tun hat</translation>
</message>
<message>
<source>Local server</source>
<translation>Lokaler Server</translation>
</message>
<message>
<source>Address, examples and requests…</source>
<translation>Adresse, Beispiele und Anfragen …</translation>
</message>
<message>
<source>Show the page of the local server</source>
<translation>Die Seite des lokalen Servers zeigen</translation>
</message>
<message>
<source>Programs on this machine can use the loaded model. Off by default.</source>
<translation>Programme auf diesem Rechner können das geladene Modell nutzen. Am Anfang aus.</translation>
</message>
<message>
<source>Nothing is sent anywhere: no figures, no reports. Chats and settings stay in files on this machine; so does what the model has read of chats and of the local server&apos;s requests (“Keep chats ready”, Ctrl+K). The network is used only for what you start yourself: downloads, and the look for a newer version.</source>
<translation>Nichts wird irgendwohin gesendet: keine Zahlen, keine Berichte. Chats und Einstellungen bleiben in Dateien auf diesem Rechner, ebenso was das Modell von Chats und von den Anfragen an den lokalen Server gelesen hat („Chats bereithalten“, Strg+K). Das Netz wird nur für das benutzt, was Sie selbst beginnen: Downloads und die Suche nach einer neueren Version.</translation>
</message>
<message>
<source>Chats, models and measurements are kept.</source>
<translation>Chats, Modelle und Messungen bleiben erhalten.</translation>
</message>
<message>
<source>Privacy</source>
<translation>Privatsphäre</translation>
</message>
<message>
<source>System</source>
<translation>System</translation>
</message>
<message>
<source>Reset</source>
<translation>Zurücksetzen</translation>
</message>
<message>
<source>Reset all settings…</source>
<translation>Alle Einstellungen zurücksetzen …</translation>
</message>
<message>
<source>Reset all settings</source>
<translation>Alle Einstellungen zurücksetzen</translation>
</message>
</context>
<context>
<name>ShortcutsPage</name>
<message>
<source>Keyboard shortcuts</source>
<translation>Tastenkürzel</translation>
</message>
<message>
<source>Keys</source>
<translation>Tasten</translation>
</message>
<message>
<source>What they do</source>
<translation>Was sie tun</translation>
</message>
<message>
<source>Columns</source>
<translation>Spalten</translation>
</message>
</context>
<context>
<name>Sidebar</name>
<message>
<source>New chat</source>
<translation>Neuer Chat</translation>
</message>
<message>
<source>Search chats</source>
<translation>Chats durchsuchen</translation>
</message>
<message>
<source>Import chats…</source>
<translation>Chats importieren …</translation>
</message>
<message>
<source>Import chats from a file</source>
<translation>Chats aus einer Datei importieren</translation>
</message>
<message>
<source>Chats are not kept: they end with this window.</source>
<translation>Chats werden nicht aufbewahrt: Sie enden mit diesem Fenster.</translation>
</message>
<message>
<source>There may be more. Type more of what you look for.</source>
<translation>Es gibt vielleicht mehr. Schreiben Sie mehr von dem, was Sie suchen.</translation>
</message>
<message>
<source>Nothing found.</source>
<translation>Nichts gefunden.</translation>
</message>
<message>
<source>Your chats will be here.</source>
<translation>Hier werden die Chats stehen.</translation>
</message>
<message>
<source>Folder</source>
<translation>Ordner</translation>
</message>
<message>
<source>Name of the folder</source>
<translation>Name des Ordners</translation>
</message>
</context>
<context>
<name>StallBars</name>
<message>
<source>Waiting time of each layer</source>
<translation>Wartezeit jeder Schicht</translation>
</message>
<message>
<source>Layer {layer} waited longest, {time}</source>
<translation>Schicht {layer} wartete am längsten, {time}</translation>
</message>
<message>
<source>No layer waited</source>
<translation>Keine Schicht wartete</translation>
</message>
<message>
<source>Layer {layer} waited {time}</source>
<translation>Schicht {layer} wartete {time}</translation>
</message>
<message>
<source>the processor computed {n}</source>
<translation>der Prozessor berechnete {n}</translation>
</message>
</context>
<context>
<name>TableCard</name>
<message>
<source>Copy</source>
<translation>Kopieren</translation>
</message>
<message>
<source>Copy this table as Markdown</source>
<translation>Diese Tabelle als Markdown kopieren</translation>
</message>
<message>
<source>Copy as CSV</source>
<translation>Als CSV kopieren</translation>
</message>
<message>
<source>Copy this table as CSV</source>
<translation>Diese Tabelle als CSV kopieren</translation>
</message>
<message>
<source>Table</source>
<translation>Tabelle</translation>
</message>
<message>
<source>Part of a table</source>
<translation>Teil einer Tabelle</translation>
</message>
</context>
<context>
<name>TextBlock</name>
<message>
<source>Formulas: {list}</source>
<translation>Formeln: {list}</translation>
</message>
<message>
<source>Part of the answer</source>
<translation>Teil der Antwort</translation>
</message>
</context>
<context>
<name>ThinkSwitch</name>
<message>
<source>Think</source>
<translation>Nachdenken</translation>
</message>
<message>
<source>Always thinks</source>
<translation>Denkt immer nach</translation>
</message>
<message>
<source>This model thinks before every answer. Its chat template has no switch.</source>
<translation>Dieses Modell denkt vor jeder Antwort nach. Seine Chat-Vorlage hat keinen Schalter.</translation>
</message>
<message>
<source>How long the model thinks: more effort takes more time and more context.</source>
<translation>Wie lange das Modell nachdenkt: Mehr Aufwand braucht mehr Zeit und mehr Kontext.</translation>
</message>
<message>
<source>The model thinks before it answers. Answers to hard questions get better, but you wait longer, and the thoughts fill the context. For this chat; “System prompt” has the choice for all chats.</source>
<translation>Das Modell denkt nach, bevor es antwortet. Antworten auf schwere Fragen werden besser, aber Sie warten länger, und die Gedanken füllen den Kontext. Gilt für diesen Chat; „System-Prompt“ hat die Wahl für alle Chats.</translation>
</message>
<message>
<source>Think: on</source>
<translation>Nachdenken: an</translation>
</message>
<message>
<source>Think: off</source>
<translation>Nachdenken: aus</translation>
</message>
<message>
<source>Effort: {effort}</source>
<translation>Aufwand: {effort}</translation>
</message>
<message>
<source>Effort</source>
<translation>Aufwand</translation>
</message>
</context>
<context>
<name>ThoughtFold</name>
<message>
<source>Thought for {time}</source>
<translation>Hat {time} nachgedacht</translation>
</message>
<message>
<source>Thinking… {time}</source>
<translation>Denkt nach … {time}</translation>
</message>
<message>
<source>Thinking…</source>
<translation>Denkt nach …</translation>
</message>
<message>
<source>Thought</source>
<translation>Gedanken</translation>
</message>
<message>
<source>Reasoning: {label}</source>
<translation>Überlegung: {label}</translation>
</message>
<message>
<source>Reasoning</source>
<translation>Überlegung</translation>
</message>
</context>
<context>
<name>TimeLine</name>
<message>
<source>Token of the answer</source>
<translation>Token der Antwort</translation>
</message>
</context>
<context>
<name>TokenLine</name>
<message>
<source>Enter a token…</source>
<translation>Token eingeben …</translation>
</message>
<message>
<source>Ask the keyring again</source>
<translation>Schlüsselbund noch einmal fragen</translation>
</message>
<message>
<source>Forget</source>
<translation>Vergessen</translation>
</message>
<message>
<source>Forget the token</source>
<translation>Das Token vergessen</translation>
</message>
<message>
<source>hf_…</source>
<translation>hf_…</translation>
</message>
<message>
<source>Token</source>
<translation>Token</translation>
</message>
<message>
<source>Check and keep</source>
<translation>Prüfen und behalten</translation>
</message>
<message>
<source>Cancel</source>
<translation>Abbrechen</translation>
</message>
<message>
<source>Asking {host} and the keyring…</source>
<translation>{host} und der Schlüsselbund werden gefragt …</translation>
</message>
<message>
<source>Copy it from {host}/settings/tokens; one that may read is enough. It is checked there, and kept in the keyring of this system, never in a file.</source>
<translation>Kopieren Sie es von {host}/settings/tokens; eines, das lesen darf, genügt. Es wird dort geprüft und im Schlüsselbund dieses Systems verwahrt, nie in einer Datei.</translation>
</message>
<message>
<source>Token of {name}, until Outrider ends: {reason}.</source>
<translation>Token von {name}, bis Outrider endet: {reason}.</translation>
</message>
<message>
<source>Token of {name}, in the keyring of this system.</source>
<translation>Token von {name}, im Schlüsselbund dieses Systems.</translation>
</message>
<message>
<source>The token of {place} is used.</source>
<translation>Das Token aus {place} wird verwendet.</translation>
</message>
<message>
<source>No token. Private repositories, and some with conditions, need one.</source>
<translation>Kein Token. Private Repositorys und manche mit Bedingungen brauchen eines.</translation>
</message>
</context>
<context>
<name>TokenStrip</name>
<message>
<source>Time of the last tokens</source>
<translation>Zeit der letzten Token</translation>
</message>
<message>
<source>0 to {time}</source>
<translation>0 bis {time}</translation>
</message>
<message>
<source>slowest {time}</source>
<translation>langsamstes {time}</translation>
</message>
<message>
<source>No tokens</source>
<translation>Keine Token</translation>
</message>
<message>
<source>The slowest of the last {n} took {time}</source>
<translation>Das langsamste der letzten {n} brauchte {time}</translation>
</message>
<message>
<source>Token {number}: {total}; compute {compute}, waiting {waiting}, unexplained {other}</source>
<translation>Token {number}: {total}; Rechnen {compute}, Warten {waiting}, unerklärt {other}</translation>
</message>
<message>
<source>A bar for each token of an answer</source>
<translation>Ein Balken für jedes Token einer Antwort</translation>
</message>
</context>
<context>
<name>ToolCard</name>
<message>
<source>Arguments</source>
<translation>Argumente</translation>
</message>
<message>
<source>The loaded model cannot see pictures. It is told that you can.</source>
<translation>Das geladene Modell sieht keine Bilder. Ihm wird gesagt, dass Sie sie sehen.</translation>
</message>
<message>
<source>Tool call: {name}, {state}</source>
<translation>Werkzeugaufruf: {name}, {state}</translation>
</message>
<message>
<source>Result: {size}</source>
<translation>Ergebnis: {size}</translation>
</message>
<message>
<source>Arguments: {size}</source>
<translation>Argumente: {size}</translation>
</message>
</context>
<context>
<name>ToolServers</name>
<message>
<source>{name}: It has not started yet.</source>
<translation>{name}: Er ist noch nicht gestartet.</translation>
</message>
<message>
<source>The model gets no tools of:</source>
<translation>Von diesen Servern bekommt das Modell keine Werkzeuge:</translation>
</message>
</context>
<context>
<name>ToolsSection</name>
<message>
<source>Tools</source>
<translation>Werkzeuge</translation>
</message>
<message>
<source>Servers that speak the Model Context Protocol (MCP) give a model tools. The model asks for a call, and you allow it or not. A server is a program that runs with your rights, or an address that gets what the model sends.</source>
<translation>Server, die das Model Context Protocol (MCP) sprechen, geben einem Modell Werkzeuge. Das Modell bittet um einen Aufruf, und Sie erlauben ihn oder nicht. Ein Server ist ein Programm, das mit Ihren Rechten läuft, oder eine Adresse, die bekommt, was das Modell schickt.</translation>
</message>
<message>
<source>There are no servers yet.</source>
<translation>Es gibt noch keine Server.</translation>
</message>
<message>
<source>Add a server…</source>
<translation>Server hinzufügen …</translation>
</message>
<message>
<source>Add a server of tools</source>
<translation>Einen Werkzeug-Server hinzufügen</translation>
</message>
<message>
<source>Import a file…</source>
<translation>Datei übernehmen …</translation>
</message>
<message>
<source>Import servers from a file of another application</source>
<translation>Server aus der Datei einer anderen Anwendung übernehmen</translation>
</message>
<message>
<source>mcp.json or claude_desktop_config.json; you can also drop it on the window.</source>
<translation>mcp.json oder claude_desktop_config.json; Sie können sie auch auf das Fenster ziehen.</translation>
</message>
<message>
<source>Answers with calls in a row that run by earlier permissions.</source>
<translation>So viele Antworten mit Aufrufen hintereinander laufen mit früheren Erlaubnissen.</translation>
</message>
<message>
<source>Rounds before it asks again</source>
<translation>Runden, bis wieder gefragt wird</translation>
</message>
<message>
<source>Time for a call, in seconds</source>
<translation>Zeit für einen Aufruf in Sekunden</translation>
</message>
<message numerus="yes">
<source>%n server(s) imported, switched off. Switch on those that you trust.</source>
<translation>
<numerusform>%n Server übernommen, ausgeschaltet. Schalten Sie ihn ein, wenn Sie ihm vertrauen.</numerusform>
<numerusform>%n Server übernommen, ausgeschaltet. Schalten Sie die ein, denen Sie vertrauen.</numerusform>
</translation>
</message>
<message>
<source>There is a server of this name already.</source>
<translation>Es gibt schon einen Server dieses Namens.</translation>
</message>
<message>
<source>Import servers</source>
<translation>Server übernehmen</translation>
</message>
<message>
<source>JSON files (*.json *.jsonc)</source>
<translation>JSON-Dateien (*.json *.jsonc)</translation>
</message>
</context>
<context>
<name>ToolsSwitch</name>
<message>
<source>Tools</source>
<translation>Werkzeuge</translation>
</message>
<message>
<source>Tools: {n}</source>
<translation>Werkzeuge: {n}</translation>
</message>
<message>
<source>This model&apos;s chat template has no form for tools.</source>
<translation>Die Chat-Vorlage dieses Modells hat keine Form für Werkzeuge.</translation>
</message>
<message>
<source>These start: {servers}. An answer waits for them.</source>
<translation>Es starten: {servers}. Eine Antwort wartet auf sie.</translation>
</message>
<message>
<source>No server is ready. The settings show why.</source>
<translation>Kein Server ist bereit. Die Einstellungen zeigen, warum.</translation>
</message>
<message numerus="yes">
<source>The model may ask for %n tool(s) in this chat.</source>
<translation>
<numerusform>Das Modell darf in diesem Chat um %n Werkzeug bitten.</numerusform>
<numerusform>Das Modell darf in diesem Chat um %n Werkzeuge bitten.</numerusform>
</translation>
</message>
<message>
<source>No tools are offered to the model in this chat.</source>
<translation>Dem Modell werden in diesem Chat keine Werkzeuge angeboten.</translation>
</message>
<message>
<source>Tools: on</source>
<translation>Werkzeuge: an</translation>
</message>
<message>
<source>Tools: off</source>
<translation>Werkzeuge: aus</translation>
</message>
</context>
<context>
<name>TopBar</name>
<message>
<source>Show or hide the chats (Ctrl+B)</source>
<translation>Chats zeigen oder verbergen (Strg+B)</translation>
</message>
<message>
<source>New chat (Ctrl+N)</source>
<translation>Neuer Chat (Strg+N)</translation>
</message>
<message>
<source>Show or hide the engine controls (Ctrl+K)</source>
<translation>Engine-Regler zeigen oder verbergen (Strg+K)</translation>
</message>
<message>
<source>Show or hide the engine panel (Ctrl+E)</source>
<translation>Engine-Ansicht zeigen oder verbergen (Strg+E)</translation>
</message>
<message>
<source>More</source>
<translation>Mehr</translation>
</message>
<message>
<source>Server</source>
<translation>Server</translation>
</message>
<message>
<source>The local server is on, at {address}.</source>
<translation>Der lokale Server läuft, unter {address}.</translation>
</message>
</context>
<context>
<name>Transcript</name>
<message>
<source>Conversation</source>
<translation>Unterhaltung</translation>
</message>
<message>
<source>Jump to the end</source>
<translation>Zum Ende springen</translation>
</message>
</context>
<context>
<name>UserBubble</name>
<message>
<source>Your message</source>
<translation>Eigene Nachricht</translation>
</message>
<message>
<source>All of it</source>
<translation>Alles</translation>
</message>
<message>
<source>Edit</source>
<translation>Ändern</translation>
</message>
<message>
<source>Change this message</source>
<translation>Diese Nachricht ändern</translation>
</message>
<message>
<source>A message of more than {most} cannot be changed here.</source>
<translation>Eine Nachricht von mehr als {most} kann hier nicht geändert werden.</translation>
</message>
<message>
<source>More about this message</source>
<translation>Mehr zu dieser Nachricht</translation>
</message>
<message>
<source>Send</source>
<translation>Senden</translation>
</message>
<message>
<source>Ask this instead</source>
<translation>Stattdessen dies fragen</translation>
</message>
<message>
<source>Your message, to change</source>
<translation>Eigene Nachricht zum Ändern</translation>
</message>
<message>
<source>Copy</source>
<translation>Kopieren</translation>
</message>
<message>
<source>Delete</source>
<translation>Löschen</translation>
</message>
</context>
<context>
<name>VersionSection</name>
<message>
<source>Version</source>
<translation>Version</translation>
</message>
<message>
<source>Look for a newer version</source>
<translation>Nach einer neueren Version suchen</translation>
</message>
<message>
<source>Open its page…</source>
<translation>Ihre Seite öffnen …</translation>
</message>
<message>
<source>Open the page of the newer version</source>
<translation>Die Seite der neueren Version öffnen</translation>
</message>
<message>
<source>This is version {version}.</source>
<translation>Dies ist die Version {version}.</translation>
</message>
<message>
<source>Looking…</source>
<translation>Es wird gesucht …</translation>
</message>
<message>
<source>Version {version} is out.</source>
<translation>Die Version {version} ist erschienen.</translation>
</message>
<message>
<source>This is the newest version.</source>
<translation>Dies ist die neueste Version.</translation>
</message>
</context>
<context>
<name>Welcome</name>
<message>
<source>Get a larger model…</source>
<translation>Ein größeres Modell holen …</translation>
</message>
<message>
<source>Open a GGUF file…</source>
<translation>GGUF-Datei öffnen …</translation>
</message>
<message>
<source>Open a model file</source>
<translation>Eine Modelldatei öffnen</translation>
</message>
<message>
<source>Ask: {question}</source>
<translation>Fragen: {question}</translation>
</message>
<message>
<source>One moment</source>
<translation>Einen Moment</translation>
</message>
<message>
<source>The model is being read. You can write already.</source>
<translation>Das Modell wird gelesen. Geschrieben werden kann schon.</translation>
</message>
<message>
<source>Which model?</source>
<translation>Welches Modell?</translation>
</message>
<message>
<source>Drop a GGUF file on this window, or open one.</source>
<translation>Eine GGUF-Datei auf dieses Fenster ziehen oder eine öffnen.</translation>
</message>
<message>
<source>The embedded model is not installed.</source>
<translation>Das eingebaute Modell ist nicht installiert.</translation>
</message>
</context>
<context>
<name>_Chip</name>
<message>
<source>Remove {file}</source>
<translation>{file} entfernen</translation>
</message>
<message>
<source>cannot be seen</source>
<translation>kann nicht gesehen werden</translation>
</message>
<message>
<source>Reading</source>
<translation>Wird gelesen</translation>
</message>
<message>
<source>page {n} of {all}</source>
<translation>Seite {n} von {all}</translation>
</message>
<message>
<source>image</source>
<translation>Bild</translation>
</message>
<message>
<source>about {tokens}</source>
<translation>etwa {tokens}</translation>
</message>
<message>
<source>scaled down</source>
<translation>verkleinert</translation>
</message>
<message>
<source>beginning only</source>
<translation>nur der Anfang</translation>
</message>
</context>
<context>
<name>_Fold</name>
<message>
<source>… and {rest} more</source>
<translation>… und {rest} mehr</translation>
</message>
</context>
<context>
<name>_Input</name>
<message>
<source>Message</source>
<translation>Nachricht</translation>
</message>
<message>
<source>Ask something…</source>
<translation>Etwas fragen …</translation>
</message>
</context>
<context>
<name>_Nouns</name>
<message numerus="yes">
<source>{n} character(s)</source>
<translation>
<numerusform>{n} Zeichen</numerusform>
<numerusform>{n} Zeichen</numerusform>
</translation>
</message>
<message numerus="yes">
<source>{n} chat(s)</source>
<translation>
<numerusform>{n} Chat</numerusform>
<numerusform>{n} Chats</numerusform>
</translation>
</message>
<message numerus="yes">
<source>{n} day(s)</source>
<translation>
<numerusform>{n} Tag</numerusform>
<numerusform>{n} Tagen</numerusform>
</translation>
</message>
<message numerus="yes">
<source>{n} expert(s)</source>
<translation>
<numerusform>{n} Experte</numerusform>
<numerusform>{n} Experten</numerusform>
</translation>
</message>
<message numerus="yes">
<source>{n} file(s)</source>
<translation>
<numerusform>{n} Datei</numerusform>
<numerusform>{n} Dateien</numerusform>
</translation>
</message>
<message numerus="yes">
<source>{n} message(s)</source>
<translation>
<numerusform>{n} Nachricht</numerusform>
<numerusform>{n} Nachrichten</numerusform>
</translation>
</message>
<message numerus="yes">
<source>{n} model(s)</source>
<translation>
<numerusform>{n} Modell</numerusform>
<numerusform>{n} Modelle</numerusform>
</translation>
</message>
<message numerus="yes">
<source>{n} page(s)</source>
<translation>
<numerusform>{n} Seite</numerusform>
<numerusform>{n} Seiten</numerusform>
</translation>
</message>
<message numerus="yes">
<source>{n} part(s)</source>
<translation>
<numerusform>{n} Teil</numerusform>
<numerusform>{n} Teilen</numerusform>
</translation>
</message>
<message numerus="yes">
<source>{n} token(s)</source>
<translation>
<numerusform>{n} Token</numerusform>
<numerusform>{n} Token</numerusform>
</translation>
</message>
</context>
<context>
<name>_Pairs</name>
<message>
<source>Add</source>
<translation>Hinzufügen</translation>
</message>
<message>
<source>Add: {name}</source>
<translation>Hinzufügen: {name}</translation>
</message>
</context>
<context>
<name>_Part</name>
<message>
<source>Copy</source>
<translation>Kopieren</translation>
</message>
</context>
<context>
<name>_Row</name>
<message>
<source>Server {name}</source>
<translation>Server {name}</translation>
</message>
<message>
<source>Tools</source>
<translation>Werkzeuge</translation>
</message>
<message>
<source>Restart</source>
<translation>Neu starten</translation>
</message>
<message>
<source>Edit…</source>
<translation>Bearbeiten …</translation>
</message>
<message>
<source>Remove…</source>
<translation>Entfernen …</translation>
</message>
<message>
<source>off</source>
<translation>aus</translation>
</message>
<message>
<source>starting…</source>
<translation>startet …</translation>
</message>
<message numerus="yes">
<source>ready with %n tool(s)</source>
<translation>
<numerusform>bereit mit %n Werkzeug</numerusform>
<numerusform>bereit mit %n Werkzeugen</numerusform>
</translation>
</message>
<message>
<source>failed</source>
<translation>gescheitert</translation>
</message>
<message>
<source>It wrote: {words}</source>
<translation>Er schrieb: {words}</translation>
</message>
<message>
<source>Tool {name}</source>
<translation>Werkzeug {name}</translation>
</message>
<message>
<source>Ask again</source>
<translation>Erneut fragen</translation>
</message>
<message>
<source>This tool runs without asking. Let it ask again.</source>
<translation>Dieses Werkzeug läuft, ohne zu fragen. Lassen Sie es wieder fragen.</translation>
</message>
<message>
<source>Remove the server {name}?</source>
<translation>Den Server {name} entfernen?</translation>
</message>
<message>
<source>Its settings and permissions are forgotten.</source>
<translation>Seine Einstellungen und Erlaubnisse werden vergessen.</translation>
</message>
<message>
<source>Remove</source>
<translation>Entfernen</translation>
</message>
<message>
<source>Keep it</source>
<translation>Behalten</translation>
</message>
</context>
<context>
<name>_Thoughts</name>
<message>
<source>Thoughts</source>
<translation>Gedanken</translation>
</message>
<message>
<source>As the model does: off</source>
<translation>Wie das Modell es vorsieht: aus</translation>
</message>
<message>
<source>As the model does: on</source>
<translation>Wie das Modell es vorsieht: an</translation>
</message>
<message>
<source>On</source>
<translation>An</translation>
</message>
<message>
<source>Off</source>
<translation>Aus</translation>
</message>
<message>
<source>Thinking</source>
<translation>Nachdenken</translation>
</message>
<message>
<source>Effort</source>
<translation>Aufwand</translation>
</message>
</context>
<context>
<name>answer</name>
<message>
<source>first token {time}</source>
<translation>erstes Token {time}</translation>
</message>
<message>
<source>waiting {share}</source>
<translation>Warten {share}</translation>
</message>
</context>
<context>
<name>chats</name>
<message>
<source>Name of the chat</source>
<translation>Name des Chats</translation>
</message>
<message>
<source>Chat</source>
<translation>Chat</translation>
</message>
<message>
<source>An answer is being written</source>
<translation>Eine Antwort wird geschrieben</translation>
</message>
<message>
<source>Pinned</source>
<translation>Angeheftet</translation>
</message>
<message>
<source>Today</source>
<translation>Heute</translation>
</message>
<message>
<source>Yesterday</source>
<translation>Gestern</translation>
</message>
<message>
<source>This week</source>
<translation>Diese Woche</translation>
</message>
<message>
<source>This month</source>
<translation>Diesen Monat</translation>
</message>
</context>
<context>
<name>commands</name>
<message>
<source>New chat</source>
<translation>Neuer Chat</translation>
</message>
<message>
<source>Rename the chat</source>
<translation>Den Chat umbenennen</translation>
</message>
<message>
<source>Search chats</source>
<translation>Chats durchsuchen</translation>
</message>
<message>
<source>Find in this chat</source>
<translation>In diesem Chat suchen</translation>
</message>
<message>
<source>Chats</source>
<translation>Chats</translation>
</message>
<message>
<source>Next chat in the list</source>
<translation>Nächster Chat der Liste</translation>
</message>
<message>
<source>Previous chat in the list</source>
<translation>Voriger Chat der Liste</translation>
</message>
<message>
<source>Retry the last answer</source>
<translation>Letzte Antwort wiederholen</translation>
</message>
<message>
<source>Copy the last answer</source>
<translation>Letzte Antwort kopieren</translation>
</message>
<message>
<source>Open a GGUF file…</source>
<translation>GGUF-Datei öffnen …</translation>
</message>
<message>
<source>Models</source>
<translation>Modelle</translation>
</message>
<message>
<source>Get models…</source>
<translation>Modelle holen …</translation>
</message>
<message>
<source>Attach files…</source>
<translation>Dateien anhängen …</translation>
</message>
<message>
<source>System prompt and sampling…</source>
<translation>System-Prompt und Sampling …</translation>
</message>
<message>
<source>Engine controls</source>
<translation>Engine-Regler</translation>
</message>
<message>
<source>Engine panel</source>
<translation>Engine-Ansicht</translation>
</message>
<message>
<source>Engine panel in the whole window</source>
<translation>Engine-Ansicht im ganzen Fenster</translation>
</message>
<message>
<source>Stop, or back to the chat</source>
<translation>Anhalten, oder zurück zum Chat</translation>
</message>
<message>
<source>Write</source>
<translation>Schreiben</translation>
</message>
<message>
<source>Settings</source>
<translation>Einstellungen</translation>
</message>
<message>
<source>Local server</source>
<translation>Lokaler Server</translation>
</message>
<message>
<source>Diagnostics</source>
<translation>Diagnose</translation>
</message>
<message>
<source>Keyboard shortcuts</source>
<translation>Tastenkürzel</translation>
</message>
<message>
<source>About Outrider</source>
<translation>Über Outrider</translation>
</message>
<message>
<source>Quit</source>
<translation>Beenden</translation>
</message>
<message>
<source>In the message: send</source>
<translation>In der Nachricht: senden</translation>
</message>
<message>
<source>In the message: a new line</source>
<translation>In der Nachricht: neue Zeile</translation>
</message>
<message>
<source>In the empty message: change the last question</source>
<translation>In der leeren Nachricht: letzte Frage ändern</translation>
</message>
<message>
<source>In an answer that is changed: keep it</source>
<translation>In einer Antwort, die geändert wird: behalten</translation>
</message>
<message>
<source>In the list of chats: delete</source>
<translation>In der Chatliste: löschen</translation>
</message>
<message>
<source>In the list of chats: pin or unpin</source>
<translation>In der Chatliste: anheften oder lösen</translation>
</message>
<message>
<source>In the list of chats: menu</source>
<translation>In der Chatliste: Menü</translation>
</message>
<message>
<source>To the next control</source>
<translation>Zum nächsten Bedienelement</translation>
</message>
</context>
<context>
<name>devices</name>
<message>
<source>{address} is sent the model&apos;s weights, your prompts and the answers, unencrypted, and whoever reaches that port controls it. Use it only in a network that you trust.</source>
<translation>{address} bekommt die Gewichte des Modells, die Eingaben und die Antworten, unverschlüsselt, und wer diesen Port erreicht, beherrscht ihn. Nur in einem vertrauenswürdigen Netz verwenden.</translation>
</message>
</context>
<context>
<name>effort</name>
<message>
<source>low</source>
<translation>niedrig</translation>
</message>
<message>
<source>medium</source>
<translation>mittel</translation>
</message>
<message>
<source>high</source>
<translation>hoch</translation>
</message>
<message>
<source>default</source>
<translation>Standard</translation>
</message>
</context>
<context>
<name>export</name>
<message>
<source>{name} could not be saved: there is no room on the drive.</source>
<translation>{name} konnte nicht gespeichert werden: Auf dem Laufwerk ist kein Platz.</translation>
</message>
<message>
<source>{name} could not be saved: its folder cannot be written to.</source>
<translation>{name} konnte nicht gespeichert werden: In den Ordner kann nicht geschrieben werden.</translation>
</message>
<message>
<source>{name} could not be saved: its folder does not exist.</source>
<translation>{name} konnte nicht gespeichert werden: Den Ordner gibt es nicht.</translation>
</message>
<message>
<source>{name} could not be saved: {reason}.</source>
<translation>{name} konnte nicht gespeichert werden: {reason}.</translation>
</message>
</context>
<context>
<name>fields</name>
<message>
<source>There is no room for that here: at most {n} characters in a line.</source>
<translation>Dafür ist hier kein Platz: höchstens {n} Zeichen in einer Zeile.</translation>
</message>
</context>
<context>
<name>files</name>
<message>
<source>No program here opens web pages. This one is {address}.</source>
<translation>Kein Programm hier öffnet Webseiten. Diese ist {address}.</translation>
</message>
<message>
<source>GGUF models (*.gguf);;All files (*)</source>
<translation>GGUF-Modelle (*.gguf);;Alle Dateien (*)</translation>
</message>
<message>
<source>No program here shows folders. This one is {folder}.</source>
<translation>Kein Programm hier zeigt Ordner. Dieser ist {folder}.</translation>
</message>
</context>
<context>
<name>language</name>
<message>
<source>Language of the system</source>
<translation>Sprache des Systems</translation>
</message>
</context>
<context>
<name>library</name>
<message>
<source>everything</source>
<translation>alles</translation>
</message>
<message>
<source>programming</source>
<translation>Programmieren</translation>
</message>
<message>
<source>images and text</source>
<translation>Bilder und Text</translation>
</message>
<message>
<source>thinking first</source>
<translation>erst denken</translation>
</message>
<message>
<source>small machines</source>
<translation>kleine Rechner</translation>
</message>
<message>
<source>on this computer</source>
<translation>auf diesem Rechner</translation>
</message>
<message>
<source>Name</source>
<translation>Name</translation>
</message>
<message>
<source>On this computer</source>
<translation>Auf diesem Rechner</translation>
</message>
<message>
<source>Good for</source>
<translation>Gut für</translation>
</message>
<message>
<source>Type</source>
<translation>Typ</translation>
</message>
<message>
<source>Files</source>
<translation>Dateien</translation>
</message>
<message>
<source>Repository</source>
<translation>Repository</translation>
</message>
<message>
<source>Licence</source>
<translation>Lizenz</translation>
</message>
<message>
<source>Downloads in a month</source>
<translation>Downloads im Monat</translation>
</message>
<message>
<source>Size</source>
<translation>Größe</translation>
</message>
<message>
<source>experts</source>
<translation>Experten</translation>
</message>
<message>
<source>always needed</source>
<translation>stets gebraucht</translation>
</message>
<message>
<source>context</source>
<translation>Kontext</translation>
</message>
<message>
<source>computing</source>
<translation>Rechnen</translation>
</message>
<message>
<source>headroom</source>
<translation>Reserve</translation>
</message>
<message>
<source>free</source>
<translation>frei</translation>
</message>
<message>
<source>missing</source>
<translation>fehlt</translation>
</message>
<message>
<source>Embedded model</source>
<translation>Eingebautes Modell</translation>
</message>
<message>
<source>Parameters</source>
<translation>Parameter</translation>
</message>
<message>
<source>Architecture</source>
<translation>Architektur</translation>
</message>
<message>
<source>Layers × experts × used</source>
<translation>Schicht × Exp. × aktiv</translation>
</message>
<message>
<source>Context</source>
<translation>Kontext</translation>
</message>
<message>
<source>Last used</source>
<translation>Zuletzt</translation>
</message>
<message>
<source>{total}, {active} active</source>
<translation>{total}, {active} aktiv</translation>
</message>
<message>
<source>{layers}, dense</source>
<translation>{layers}, stets gebraucht</translation>
</message>
<message>
<source>today</source>
<translation>heute</translation>
</message>
<message>
<source>yesterday</source>
<translation>gestern</translation>
</message>
<message>
<source>{days} ago</source>
<translation>vor {days}</translation>
</message>
<message>
<source>about {speed}</source>
<translation>etwa {speed}</translation>
</message>
<message>
<source>cannot be used</source>
<translation>nicht verwendbar</translation>
</message>
<message>
<source>too large</source>
<translation>zu groß</translation>
</message>
<message>
<source>fits in memory</source>
<translation>passt in den Speicher</translation>
</message>
<message>
<source>through the cache</source>
<translation>über den Cache</translation>
</message>
<message>
<source>fits, {speed}</source>
<translation>passt, {speed}</translation>
</message>
<message>
<source>cache, {speed}</source>
<translation>Cache, {speed}</translation>
</message>
<message>
<source>It cannot be used: {reason}.</source>
<translation>Nicht verwendbar: {reason}.</translation>
</message>
<message>
<source>It fits in memory.</source>
<translation>Es passt in den Speicher.</translation>
</message>
<message>
<source>It fits in memory, at {speed}.</source>
<translation>Es passt in den Speicher, mit {speed}.</translation>
</message>
<message>
<source>The cache is not used: {reason}.</source>
<translation>Der Cache wird nicht verwendet: {reason}.</translation>
</message>
<message>
<source>All its experts fit in memory.</source>
<translation>Alle Experten passen in den Speicher.</translation>
</message>
<message>
<source>All its experts fit in memory, at {speed}.</source>
<translation>Alle Experten passen in den Speicher, mit {speed}.</translation>
</message>
<message>
<source>It runs through the cache: {n} of {all} experts of each layer fit in memory.</source>
<translation>Es läuft über den Cache: {n} von {all} Experten jeder Schicht passen in den Speicher.</translation>
</message>
<message>
<source>It runs through the cache: {n} of {all} experts of each layer fit in memory, at {speed}.</source>
<translation>Es läuft über den Cache: {n} von {all} Experten jeder Schicht passen in den Speicher, mit {speed}.</translation>
</message>
<message>
<source>At the cache rate that is set, {share}, it takes {size}.</source>
<translation>Mit dem eingestellten Cache-Anteil, {share}, braucht es {size}.</translation>
</message>
<message>
<source>At the cache rate that is set, {share}, it takes {size} and runs at {speed}.</source>
<translation>Mit dem eingestellten Cache-Anteil, {share}, braucht es {size} und läuft mit {speed}.</translation>
</message>
<message>
<source>Too large: even with {n} experts of each layer it needs {size}, and {headroom} for other programs, but only {free} are free.</source>
<translation>Zu groß: Selbst mit {n} Experten jeder Schicht braucht es {size}, dazu {headroom} für andere Programme, aber nur {free} sind frei.</translation>
</message>
<message>
<source>Too large: it needs {size}, and {headroom} for other programs, but only {free} are free.</source>
<translation>Zu groß: Es braucht {size}, dazu {headroom} für andere Programme, aber nur {free} sind frei.</translation>
</message>
<message>
<source>It would run with {size} more.</source>
<translation>Mit {size} mehr würde es laufen.</translation>
</message>
<message>
<source>The cache cannot help: {reason}.</source>
<translation>Der Cache kann nicht helfen: {reason}.</translation>
</message>
<message>
<source>Measured in the last answer; other cache rates are forecast from it.</source>
<translation>In der letzten Antwort gemessen; andere Cache-Anteile sind daraus vorhergesagt.</translation>
</message>
<message>
<source>A forecast, corrected by what the last answer measured at another cache rate.</source>
<translation>Eine Vorhersage, berichtigt durch die Messung der letzten Antwort bei einem anderen Cache-Anteil.</translation>
</message>
<message>
<source>A forecast from this machine&apos;s measured speeds; the first answer corrects it.</source>
<translation>Eine Vorhersage aus den gemessenen Geschwindigkeiten dieses Rechners; die erste Antwort berichtigt sie.</translation>
</message>
<message>
<source>A forecast from this machine&apos;s measured speeds and a guess of how many experts will be found in memory; the first answer corrects it.</source>
<translation>Eine Vorhersage aus den gemessenen Geschwindigkeiten dieses Rechners und einer Schätzung, wie viele Experten schon im Speicher sein werden; die erste Antwort berichtigt sie.</translation>
</message>
<message>
<source>Checked ({when}): {result}</source>
<translation>Geprüft ({when}): {result}</translation>
</message>
<message>
<source>No models.</source>
<translation>Keine Modelle.</translation>
</message>
<message>
<source>The folder {folder} {trouble}.</source>
<translation>Der Ordner {folder} {trouble}.</translation>
</message>
<message>
<source>Columns</source>
<translation>Spalten</translation>
</message>
</context>
<context>
<name></name>
<message>
<source>{why}: the alternatives are tried again.</source>
<translation>{why}: Die Alternativen werden noch einmal versucht.</translation>
</message>
<message>
<source>{first} and {last}</source>
<translation>{first} und {last}</translation>
</message>
<message>
<source>{state} and {eviction} decides what leaves</source>
<translation>{state} und {eviction} entscheidet, was geht</translation>
</message>
<message>
<source>{file} is a damaged PDF.</source>
<translation>{file} ist ein beschädigtes PDF.</translation>
</message>
<message>
<source>{file} is empty.</source>
<translation>{file} ist leer.</translation>
</message>
<message>
<source>{file} is encrypted. Attach a copy without a password.</source>
<translation>{file} ist verschlüsselt. Hängen Sie eine Kopie ohne Passwort an.</translation>
</message>
<message>
<source>{file} is a folder. Attach the files that are in it.</source>
<translation>{file} ist ein Ordner. Hängen Sie die Dateien darin an.</translation>
</message>
<message>
<source>{file} is not a file that can be read.</source>
<translation>{file} ist keine Datei, die gelesen werden kann.</translation>
</message>
<message>
<source>{file} has no text: its pages may be pictures.</source>
<translation>{file} enthält keinen Text: Die Seiten sind vielleicht Bilder.</translation>
</message>
<message>
<source>{file} has {n:count} pixels; at most {most:count} can be attached.</source>
<translation>{file} hat {n:count} Pixel; höchstens {most:count} können angehängt werden.</translation>
</message>
<message>
<source>{file} is an image of a kind that cannot be read. Save it as PNG or JPEG.</source>
<translation>{file} ist ein Bild, dessen Art nicht gelesen werden kann. Speichern Sie es als PNG oder JPEG.</translation>
</message>
<message>
<source>An attached file</source>
<translation>Eine angehängte Datei</translation>
</message>
<message>
<source>{file} was not read to its end.</source>
<translation>{file} wurde nicht zu Ende gelesen.</translation>
</message>
<message>
<source>{file} takes too much time or memory to read.</source>
<translation>{file} braucht zum Lesen zu viel Zeit oder Speicher.</translation>
</message>
<message>
<source>{file} has {n:size}; at most {most:size} can be attached.</source>
<translation>{file} hat {n:size}; höchstens {most:size} können angehängt werden.</translation>
</message>
<message>
<source>{file} has more than {most:count} characters, the most of one attachment.</source>
<translation>{file} hat mehr als {most:count} Zeichen, das Höchste für einen Anhang.</translation>
</message>
<message>
<source>{file} has {n:count} pages; at most {most:count} can be attached.</source>
<translation>{file} hat {n:count} Seiten; höchstens {most:count} können angehängt werden.</translation>
</message>
<message>
<source>{file} is not attached: a question can have at most {most:count} files.</source>
<translation>{file} ist nicht angehängt: Eine Frage kann höchstens {most:count} Dateien haben.</translation>
</message>
<message>
<source>{file} cannot be read: {reason}.</source>
<translation>{file} kann nicht gelesen werden: {reason}.</translation>
</message>
<message>
<source>tried over {n} tokens, a token took as long</source>
<translation>über {n} Token versucht, ein Token dauerte ebenso lange</translation>
</message>
<message>
<source>broken off, because the first tokens took too long</source>
<translation>abgebrochen, weil die ersten Token zu lange dauerten</translation>
</message>
<message>
<source>{first}, {next}</source>
<translation>{first}, {next}</translation>
</message>
<message>
<source>{chosen}: {figures}.</source>
<translation>{chosen}: {figures}.</translation>
</message>
<message>
<source>Now {new} decides what leaves, instead of {old}</source>
<translation>Jetzt entscheidet {new}, was geht, statt {old}</translation>
</message>
<message>
<source>The hit rate went from {before:percent} to {after:percent}</source>
<translation>Die Trefferquote ging von {before:percent} auf {after:percent}</translation>
</message>
<message>
<source>the drive was idle {idle:percent} of the time</source>
<translation>das Laufwerk war {idle:percent} der Zeit ohne Arbeit</translation>
</message>
<message>
<source>The idle share of the drive&apos;s time went from {before:percent} to {after:percent}</source>
<translation>Der Anteil der Zeit, in der das Laufwerk ohne Arbeit war, ging von {before:percent} auf {after:percent}</translation>
</message>
<message>
<source>without it the drive was idle {idle:percent} of the time</source>
<translation>ohne es war das Laufwerk {idle:percent} der Zeit ohne Arbeit</translation>
</message>
<message>
<source>Forecasts are fetched {n} layers ahead</source>
<translation>Vorhergesagtes wird {n} Schichten im Voraus geholt</translation>
</message>
<message>
<source>tried over {n} tokens, a token took {share:percent} less time</source>
<translation>über {n} Token versucht, ein Token brauchte {share:percent} weniger Zeit</translation>
</message>
<message>
<source>tried over {n} tokens, a token took {share:percent} more time</source>
<translation>über {n} Token versucht, ein Token brauchte {share:percent} mehr Zeit</translation>
</message>
<message>
<source>Forecasts are fetched one layer ahead</source>
<translation>Vorhergesagtes wird eine Schicht im Voraus geholt</translation>
</message>
<message>
<source>Prefetching is off</source>
<translation>Das Vorabholen ist aus</translation>
</message>
<message>
<source>Prefetching is on</source>
<translation>Das Vorabholen ist an</translation>
</message>
<message>
<source>Prefetching stays off</source>
<translation>Das Vorabholen bleibt aus</translation>
</message>
<message>
<source>Prefetching stays on</source>
<translation>Das Vorabholen bleibt an</translation>
</message>
<message>
<source>{now:percent} of the experts were there instead of {before:percent}</source>
<translation>{now:percent} der Experten waren da statt {before:percent}</translation>
</message>
<message>
<source>Still {old} decides what leaves, not {new}</source>
<translation>Weiterhin entscheidet {old}, was geht, nicht {new}</translation>
</message>
<message>
<source>Forecasts are still fetched {old} layers ahead, not {new}</source>
<translation>Vorhergesagtes wird weiterhin {old} Schichten im Voraus geholt, nicht {new}</translation>
</message>
<message>
<source>Forecasts are still fetched one layer ahead, not {new}</source>
<translation>Vorhergesagtes wird weiterhin eine Schicht im Voraus geholt, nicht {new}</translation>
</message>
<message>
<source>The time of a token went from {before} to {after} ms</source>
<translation>Die Zeit für ein Token ging von {before} auf {after} ms</translation>
</message>
<message>
<source>{used:percent} of what was fetched ahead was used</source>
<translation>{used:percent} des vorab Geholten wurde gebraucht</translation>
</message>
<message>
<source>The used share of what is fetched ahead went from {before:percent} to {after:percent}</source>
<translation>Der gebrauchte Anteil des vorab Geholten ging von {before:percent} auf {after:percent}</translation>
</message>
<message>
<source>The cache is another one</source>
<translation>Der Cache ist ein anderer</translation>
</message>
<message>
<source>With {n} answers at once: {line}</source>
<translation>Bei {n} Antworten zugleich: {line}</translation>
</message>
<message>
<source>The cache rate is {rate:percent}</source>
<translation>Der Cache-Anteil ist {rate:percent}</translation>
</message>
<message>
<source>{what}: {sentence}</source>
<translation>{what}: {sentence}</translation>
</message>
<message>
<source>The engine&apos;s process ended unexpectedly: {reason}.</source>
<translation>Der Prozess der Engine endete unerwartet: {reason}.</translation>
</message>
<message>
<source>llama.cpp stopped on a failed check ({check})</source>
<translation>llama.cpp hielt bei einer gescheiterten Prüfung an ({check})</translation>
</message>
<message>
<source>The engine&apos;s process closed its pipe and was ended.</source>
<translation>Der Prozess der Engine schloss seine Verbindung und wurde beendet.</translation>
</message>
<message>
<source>the device failed ({device}: {reason})</source>
<translation>das Gerät versagte ({device}: {reason})</translation>
</message>
<message>
<source>the device failed ({device}), and gave no reason</source>
<translation>das Gerät versagte ({device}), ohne einen Grund zu nennen</translation>
</message>
<message>
<source>The engine&apos;s process ended unexpectedly: the remote device no longer answers. What was said is kept; choose another device, or load the model again when it is back.</source>
<translation>Der Prozess der Engine endete unerwartet: Das entfernte Gerät antwortet nicht mehr. Was gesagt wurde, ist aufbewahrt; wählen Sie ein anderes Gerät, oder laden Sie das Modell wieder, wenn es zurück ist.</translation>
</message>
<message>
<source>it was killed (signal 9), most likely because memory ran out; a lower cache rate or a shorter context needs less</source>
<translation>er wurde beendet (Signal 9), höchstwahrscheinlich weil der Speicher ausging; ein kleinerer Cache-Anteil oder ein kürzerer Kontext braucht weniger</translation>
</message>
<message>
<source>the model file could not be read any more (signal {signal}); it may have been shortened, or its drive removed</source>
<translation>die Modelldatei war nicht mehr lesbar (Signal {signal}); vielleicht wurde sie gekürzt oder ihr Laufwerk entfernt</translation>
</message>
<message>
<source>The engine&apos;s process ended unexpectedly without an error.</source>
<translation>Der Prozess der Engine endete unerwartet, ohne einen Fehler.</translation>
</message>
<message>
<source>memory ran out; a lower cache rate or a shorter context needs less</source>
<translation>der Speicher ging aus; ein kleinerer Cache-Anteil oder ein kürzerer Kontext braucht weniger</translation>
</message>
<message>
<source>memory ran out (signal {signal}); a lower cache rate or a shorter context needs less</source>
<translation>der Speicher ging aus (Signal {signal}); ein kleinerer Cache-Anteil oder ein kürzerer Kontext braucht weniger</translation>
</message>
<message>
<source>{what} (signal {signal})</source>
<translation>{what} (Signal {signal})</translation>
</message>
<message>
<source>The engine&apos;s process ended unexpectedly with status {status}.</source>
<translation>Der Prozess der Engine endete unerwartet mit dem Status {status}.</translation>
</message>
<message>
<source>it crashed (access violation)</source>
<translation>er stürzte ab (Zugriffsverletzung)</translation>
</message>
<message>
<source>it stopped on a failed check</source>
<translation>er hielt bei einer gescheiterten Prüfung an</translation>
</message>
<message>
<source>it crashed</source>
<translation>er stürzte ab</translation>
</message>
<message>
<source>it was ended</source>
<translation>er wurde beendet</translation>
</message>
<message>
<source>it crashed (this processor lacks an instruction that it needs)</source>
<translation>er stürzte ab (diesem Prozessor fehlt ein Befehl, den er braucht)</translation>
</message>
<message>
<source>a library that it needs is missing</source>
<translation>eine Bibliothek, die er braucht, fehlt</translation>
</message>
<message>
<source>memory ran out</source>
<translation>der Speicher ging aus</translation>
</message>
<message>
<source>it crashed (stack overflow)</source>
<translation>er stürzte ab (Stapelüberlauf)</translation>
</message>
<message>
<source>it was told to end</source>
<translation>er wurde zum Ende aufgefordert</translation>
</message>
<message>
<source>The engine sent something that could not be understood.</source>
<translation>Die Engine hat etwas Unverständliches gesendet.</translation>
</message>
<message>
<source>The engine&apos;s process does not answer.</source>
<translation>Der Prozess der Engine antwortet nicht.</translation>
</message>
<message>
<source>The engine runs but has made no progress for {minutes} minutes.</source>
<translation>Die Engine läuft, kommt aber seit {minutes} Minuten nicht voran.</translation>
</message>
<message>
<source>The engine could not be started.</source>
<translation>Die Engine konnte nicht gestartet werden.</translation>
</message>
<message>
<source>The engine could not be started: {reason}</source>
<translation>Die Engine konnte nicht gestartet werden: {reason}</translation>
</message>
<message>
<source>The engine&apos;s process is of another version than this program.</source>
<translation>Der Prozess der Engine hat eine andere Version als dieses Programm.</translation>
</message>
<message>
<source>The engine has not answered for {seconds} seconds.</source>
<translation>Die Engine hat seit {seconds} Sekunden nicht geantwortet.</translation>
</message>
<message>
<source>The engine made a message that cannot be sent.</source>
<translation>Die Engine hat eine Nachricht erzeugt, die nicht gesendet werden kann.</translation>
</message>
<message>
<source>The experts of the architecture {architecture} cannot be cached: {reason}.</source>
<translation>Die Experten der Architektur {architecture} können nicht in den Cache: {reason}.</translation>
</message>
<message>
<source>Loading was cancelled.</source>
<translation>Das Laden wurde abgebrochen.</translation>
</message>
<message>
<source>{file} was changed or replaced after it was checked; load it again.</source>
<translation>{file} wurde nach der Prüfung geändert oder ersetzt; bitte neu laden.</translation>
</message>
<message>
<source>{file} makes embeddings and writes no text. Choose it as the local server&apos;s model for embeddings.</source>
<translation>{file} erzeugt Einbettungen und schreibt keinen Text. Wählen Sie sie als Modell des lokalen Servers für Einbettungen.</translation>
</message>
<message>
<source>The context could not be made: {reason}.</source>
<translation>Der Kontext konnte nicht angelegt werden: {reason}.</translation>
</message>
<message>
<source>llama.cpp could not load {file}: {reason}.</source>
<translation>llama.cpp konnte {file} nicht laden: {reason}.</translation>
</message>
<message>
<source>There is not enough memory; a lower cache rate or a shorter context needs less.</source>
<translation>Der Speicher reicht nicht; ein kleinerer Cache-Anteil oder ein kürzerer Kontext braucht weniger.</translation>
</message>
<message>
<source>No model is loaded.</source>
<translation>Kein Modell ist geladen.</translation>
</message>
<message>
<source>There is no such token.</source>
<translation>Dieses Token gibt es nicht.</translation>
</message>
<message>
<source>The model computed NaN or infinite values, so the answer was stopped: {reason}.</source>
<translation>Das Modell hat NaN oder unendliche Werte berechnet, daher wurde die Antwort beendet: {reason}.</translation>
</message>
<message>
<source>its file may be damaged, so fetch it again or take another model</source>
<translation>die Datei ist vielleicht beschädigt; sie erneut laden oder ein anderes Modell nehmen</translation>
</message>
<message>
<source>{file} is a damaged image.</source>
<translation>{file} ist ein beschädigtes Bild.</translation>
</message>
<message>
<source>{host} does not say in a known form which version is the newest.</source>
<translation>{host} sagt nicht in bekannter Form, welche Version die neueste ist.</translation>
</message>
<message>
<source>it was killed (signal 9) by the user or another program; the memory had not run out</source>
<translation>er wurde vom Benutzer oder einem anderen Programm beendet (Signal 9); der Speicher war nicht erschöpft</translation>
</message>
<message>
<source>This model cannot see images.</source>
<translation>Dieses Modell kann keine Bilder sehen.</translation>
</message>
<message>
<source>The next layer is read whole while one is computed, which was measured to be faster.</source>
<translation>Die nächste Schicht wird ganz gelesen, während eine gerechnet wird; das wurde als schneller gemessen.</translation>
</message>
<message>
<source>Expert {expert} of layer {layer} in memory differed from the model&apos;s file, so earlier answers may be wrong. It is read again; if this comes back, test the machine&apos;s memory.</source>
<translation>Experte {expert} der Schicht {layer} war im Speicher anders als in der Datei des Modells; frühere Antworten können falsch sein. Er wird neu gelesen. Kommt das wieder, prüfen Sie den Speicher des Rechners.</translation>
</message>
<message>
<source>The chat and its images are larger than {most:size}, the most at once.</source>
<translation>Der Chat und seine Bilder sind größer als {most:size}; mehr geht nicht auf einmal.</translation>
</message>
<message>
<source>The chat template of {model} leaves images out, so it cannot be sent any.</source>
<translation>Die Chatvorlage von {model} lässt Bilder weg, also kann es keine bekommen.</translation>
</message>
<message>
<source>{file} is no file with which a model sees images.</source>
<translation>{file} ist keine Datei, mit der ein Modell Bilder sieht.</translation>
</message>
<message>
<source>{file} cannot be used with this model: {reason}.</source>
<translation>{file} passt nicht zu diesem Modell: {reason}.</translation>
</message>
<message>
<source>The model could not read an image: {reason}.</source>
<translation>Das Modell konnte ein Bild nicht lesen: {reason}.</translation>
</message>
<message>
<source>{bytes:size} of RAM for experts could not be pinned, so copies to devices take longer.</source>
<translation>{bytes:size} RAM für Experten konnten nicht gepinnt werden, darum dauern Kopien zu Geräten länger.</translation>
</message>
<message>
<source>The prompt has {n:count} tokens, but the context holds only {n_context:count}.</source>
<translation>Der Prompt hat {n:count} Token, aber der Kontext fasst nur {n_context:count}.</translation>
</message>
<message>
<source>The slots of {tensor} need {bytes:size} in one piece, more than {device} allows; a lower cache rate needs less.</source>
<translation>Die Plätze von {tensor} brauchen {bytes:size} in einem Stück, mehr als {device} erlaubt; ein kleinerer Cache-Anteil braucht weniger.</translation>
</message>
<message>
<source>Reading the weights</source>
<translation>Die Gewichte werden gelesen</translation>
</message>
<message>
<source>The grammar does not fit the beginning of the answer in the prompt.</source>
<translation>Die Grammatik passt nicht zum Anfang der Antwort im Prompt.</translation>
</message>
<message>
<source>The grammar is invalid: {reason}.</source>
<translation>Die Grammatik ist ungültig: {reason}.</translation>
</message>
<message>
<source>The grammar has no trigger that says where it begins.</source>
<translation>Der Grammatik fehlt ein Auslöser, der sagt, wo sie beginnt.</translation>
</message>
<message>
<source>it has a character NUL</source>
<translation>sie enthält ein NUL-Zeichen</translation>
</message>
<message>
<source>Probabilities after sampling cannot be given for an answer that a grammar constrains.</source>
<translation>Wahrscheinlichkeiten nach der Auswahl gibt es nicht für eine Antwort, die eine Grammatik einschränkt.</translation>
</message>
<message>
<source>No token of the model fits the grammar of the answer.</source>
<translation>Kein Token des Modells passt zur Grammatik der Antwort.</translation>
</message>
<message>
<source>The grammar is too large or too deeply nested.</source>
<translation>Die Grammatik ist zu groß oder zu tief verschachtelt.</translation>
</message>
<message>
<source>it cannot be parsed</source>
<translation>sie lässt sich nicht lesen</translation>
</message>
<message>
<source>No value fits the JSON schema.</source>
<translation>Kein Wert passt zum JSON-Schema.</translation>
</message>
<message>
<source>The JSON schema is malformed.</source>
<translation>Das JSON-Schema ist fehlerhaft.</translation>
</message>
<message>
<source>Answers under a JSON schema need the package llguidance, which is missing.</source>
<translation>Antworten nach einem JSON-Schema brauchen das Paket llguidance, das fehlt.</translation>
</message>
<message>
<source>The JSON schema is too complex.</source>
<translation>Das JSON-Schema ist zu aufwendig.</translation>
</message>
<message>
<source>The JSON schema is nested too deeply.</source>
<translation>Das JSON-Schema ist zu tief verschachtelt.</translation>
</message>
<message>
<source>The JSON schema uses {what}, which answers cannot be held to.</source>
<translation>Das JSON-Schema verwendet {what}; daran lassen sich Antworten nicht binden.</translation>
</message>
<message>
<source>The chat format of {model} cannot hold answers to a JSON schema.</source>
<translation>Das Chat-Format von {model} kann Antworten nicht an ein JSON-Schema binden.</translation>
</message>
<message>
<source>The chat template of {model} failed: {reason}.</source>
<translation>Die Chat-Vorlage von {model} scheiterte: {reason}.</translation>
</message>
<message>
<source>The oldest {n} messages were left out, because the chat template would take too long.</source>
<translation>Die ältesten {n} Nachrichten wurden weggelassen, weil die Chat-Vorlage zu lange brauchen würde.</translation>
</message>
<message>
<source>The chat template of {model} has no form for tool calls.</source>
<translation>Die Chat-Vorlage von {model} hat keine Form für Werkzeugaufrufe.</translation>
</message>
<message>
<source>The chat template of {model} takes too long.</source>
<translation>Die Chat-Vorlage von {model} braucht zu lange.</translation>
</message>
<message>
<source>The attention cache of {architecture} models can only be of type f16.</source>
<translation>Der Attention-Cache von {architecture}-Modellen kann nur vom Typ f16 sein.</translation>
</message>
<message>
<source>The attention heads of this model are too small for a cache of type {type}.</source>
<translation>Die Attention-Köpfe dieses Modells sind für einen Cache vom Typ {type} zu klein.</translation>
</message>
<message>
<source>There is not enough memory for the expert cache; a lower cache rate needs less.</source>
<translation>Für den Expertencache reicht der Speicher nicht; ein kleinerer Cache-Anteil braucht weniger.</translation>
</message>
<message>
<source>llama-cpp-python {version} is not installed.</source>
<translation>llama-cpp-python {version} ist nicht installiert.</translation>
</message>
<message>
<source>The text could not be split into tokens.</source>
<translation>Der Text konnte nicht in Token zerlegt werden.</translation>
</message>
<message>
<source>The file {file} could not be opened: {reason}.</source>
<translation>Die Datei {file} konnte nicht geöffnet werden: {reason}.</translation>
</message>
<message>
<source>The C++ sources have changed since the native part was built. Run `make native`, and start again.</source>
<translation>Die C++-Quellen haben sich geändert, seit der native Teil gebaut wurde. Führen Sie `make native` aus und starten Sie neu.</translation>
</message>
<message>
<source>llama-cpp-python {found} is installed, but Outrider needs exactly {version}.</source>
<translation>llama-cpp-python {found} ist installiert, aber Outrider braucht genau {version}.</translation>
</message>
<message>
<source>llama.cpp could not compute a token (status {status}).</source>
<translation>llama.cpp konnte ein Token nicht berechnen (Status {status}).</translation>
</message>
<message>
<source>More than {n} requests are waiting for the engine.</source>
<translation>Mehr als {n} Anfragen warten auf die Engine.</translation>
</message>
<message>
<source>its process ended unexpectedly (status {status})</source>
<translation>ihr Prozess endete unerwartet (Status {status})</translation>
</message>
<message>
<source>the conversation is too long for it</source>
<translation>das Gespräch ist zu lang für sie</translation>
</message>
<message>
<source>it made a prompt of absurd length</source>
<translation>sie hat einen Prompt von absurder Länge erzeugt</translation>
</message>
<message>
<source>it needs too much memory</source>
<translation>sie braucht zu viel Speicher</translation>
</message>
<message>
<source>its process could not be started: {reason}</source>
<translation>ihr Prozess konnte nicht gestartet werden: {reason}</translation>
</message>
<message>
<source>The cache rate is {rate:percent} by hand; automatic it would be {automatic:percent}.</source>
<translation>Der Cache-Anteil ist von Hand {rate:percent}; automatisch wäre er {automatic:percent}.</translation>
</message>
<message>
<source>The context is {n:count} tokens by hand; automatic it would be {automatic:count}.</source>
<translation>Der Kontext ist von Hand {n:count} Token lang; automatisch wäre er {automatic:count}.</translation>
</message>
<message>
<source>The method is {method} by hand; automatic it would be chosen by what is measured.</source>
<translation>Das Verfahren ist von Hand {method}; automatisch würde es nach Messungen gewählt.</translation>
</message>
<message>
<source>every expert is in memory</source>
<translation>alle Experten sind im Speicher</translation>
</message>
<message>
<source>A context of {n:count} tokens takes {bytes:size} there.</source>
<translation>Ein Kontext von {n:count} Token belegt dort {bytes:size}.</translation>
</message>
<message>
<source>The context is {n:count} tokens instead of {wanted:count}, so that more layers fit; it takes {bytes:size} there.</source>
<translation>Der Kontext hat {n:count} Token statt {wanted:count}, damit mehr Schichten Platz finden; er belegt dort {bytes:size}.</translation>
</message>
<message>
<source>Of the CPU&apos;s layers it keeps {n} of {all} experts, in {bytes:size}.</source>
<translation>Von den Schichten des Prozessors behält es {n} von {all} Experten, in {bytes:size}.</translation>
</message>
<message>
<source>A dense model has no experts to cache.</source>
<translation>Ein dichtes Modell hat keine Experten für den Cache.</translation>
</message>
<message>
<source>{free:size} of memory are free: {n} of {all} experts of each layer are kept instead of {wanted}.</source>
<translation>{free:size} Speicher sind frei: {n} von {all} Experten jeder Schicht werden behalten statt {wanted}.</translation>
</message>
<message>
<source>Kept there are {n} of {all} experts of each layer, as asked, in {bytes:size}.</source>
<translation>Dort liegen {n} von {all} Experten jeder Schicht, wie gewünscht, in {bytes:size}.</translation>
</message>
<message>
<source>Kept there are {n} of {all} experts of each layer instead of {wanted}, in {bytes:size}; {left:size} are left to others.</source>
<translation>Dort liegen {n} von {all} Experten jeder Schicht statt {wanted}, in {bytes:size}; {left:size} bleiben für andere frei.</translation>
</message>
<message>
<source>All {n} layers are computed by {devices}.</source>
<translation>Alle {n} Schichten berechnet {devices}.</translation>
</message>
<message>
<source>The last {n} of {all} layers are computed by {devices}, whose memory holds no more; the CPU computes the others.</source>
<translation>Die letzten {n} von {all} Schichten berechnet {devices}, dessen Speicher nicht mehr fasst; die übrigen berechnet der Prozessor.</translation>
</message>
<message>
<source>The memory of {devices} holds not even one layer: the CPU computes.</source>
<translation>Der Speicher von {devices} fasst nicht einmal eine Schicht: Es rechnet der Prozessor.</translation>
</message>
<message>
<source>it is a dense model, without experts</source>
<translation>es ist ein dichtes Modell, ohne Experten</translation>
</message>
<message>
<source>the experts of this {architecture} file are not stored as stacked tensors</source>
<translation>die Experten dieser {architecture}-Datei sind nicht als gestapelte Tensoren gespeichert</translation>
</message>
<message>
<source>Other programs need memory: {n} of {all} experts of each layer are kept instead of {wanted}.</source>
<translation>Andere Programme brauchen Speicher: {n} von {all} Experten jeder Schicht werden behalten statt {wanted}.</translation>
</message>
<message>
<source>Other programs need memory: RAM keeps {n} experts of each layer of the CPU&apos;s instead of {before}.</source>
<translation>Andere Programme brauchen Speicher: Das RAM behält von jeder Schicht des Prozessors {n} Experten statt {before}.</translation>
</message>
<message>
<source>Other programs need the device&apos;s memory: {n} of {all} experts of each layer are kept there instead of {wanted}.</source>
<translation>Andere Programme brauchen den Speicher des Geräts: {n} von {all} Experten jeder Schicht bleiben dort statt {wanted}.</translation>
</message>
<message>
<source>Other programs need memory: RAM keeps {n} experts of each layer for the device instead of {before}.</source>
<translation>Andere Programme brauchen Speicher: Das RAM behält für das Gerät {n} Experten jeder Schicht statt {before}.</translation>
</message>
<message>
<source>Prompts copy the experts once for every {n} tokens.</source>
<translation>Lange Eingaben kopieren die Experten einmal je {n} Token.</translation>
</message>
<message>
<source>Prompts copy the experts once for every {n} tokens, through {bytes:size} beside the slots, ahead of the layers that need them.</source>
<translation>Lange Eingaben kopieren die Experten einmal je {n} Token, durch {bytes:size} neben den Plätzen und den Schichten voraus, die sie brauchen.</translation>
</message>
<message>
<source>RAM keeps all of them, in {bytes:size}: the file is read once.</source>
<translation>Das RAM behält alle, in {bytes:size}: die Datei wird einmal gelesen.</translation>
</message>
<message>
<source>RAM keeps {n} of {all} experts of each layer, in {bytes:size} instead of {asked:size}; the others are read from the file.</source>
<translation>Das RAM behält {n} von {all} Experten jeder Schicht, in {bytes:size} statt {asked:size}; die anderen werden aus der Datei gelesen.</translation>
</message>
<message>
<source>RAM keeps no experts for devices, as asked.</source>
<translation>Das RAM behält wie gewünscht keine Experten für Geräte.</translation>
</message>
<message>
<source>The {bytes:size} of RAM that may keep experts hold not one of each layer: nearly all are read from the file.</source>
<translation>In die {bytes:size} RAM, die Experten behalten dürfen, passt nicht einer jeder Schicht: fast alle werden aus der Datei gelesen.</translation>
</message>
<message>
<source>RAM keeps {n} of {all} experts of each layer, in {bytes:size}; the others are read from the file.</source>
<translation>Das RAM behält {n} von {all} Experten jeder Schicht, in {bytes:size}; die anderen werden aus der Datei gelesen.</translation>
</message>
<message>
<source>Starts reactive, measures what prefetching and other evictions bring on this machine with this model, and keeps what pays.</source>
<translation>Beginnt abwartend, misst, was Vorausladen und anderes Verdrängen auf diesem Rechner mit diesem Modell bringen, und behält, was sich lohnt.</translation>
</message>
<message>
<source>As promoe, but what was used most often of late stays, not what was used last.</source>
<translation>Wie promoe, aber es bleibt, was in letzter Zeit am häufigsten benutzt wurde, nicht das zuletzt Benutzte.</translation>
</message>
<message>
<source>As promoe, but what followed at moments like the present one stays: for slow drives.</source>
<translation>Wie promoe, aber es bleibt, was in ähnlichen Augenblicken folgte: für langsame Laufwerke.</translation>
</message>
<message>
<source>Prefetches what a predictor expects of the next layers; needed experts overtake, ready ones are computed first.</source>
<translation>Lädt voraus, was eine Vorhersage für die nächsten Schichten erwartet; gebrauchte Experten überholen, fertige werden zuerst berechnet.</translation>
</message>
<message>
<source>Keeps the top parts of hot experts and fetches the bottoms while the tops compute; sizes and cuts are fitted to what was measured.</source>
<translation>Behält die oberen Teile oft genutzter Experten und holt die unteren, während die oberen rechnen; Größen und Schnitte richten sich nach dem Gemessenen.</translation>
</message>
<message>
<source>As moepic, but every layer has the same slots and every expert is cut in the middle.</source>
<translation>Wie moepic, aber jede Schicht hat gleich viele Plätze und jeder Experte wird in der Mitte geschnitten.</translation>
</message>
<message>
<source>Passes experts through a few slots: in prompts one after the other, then what is predicted for the next layer.</source>
<translation>Führt Experten durch wenige Plätze: in Prompts einen nach dem anderen, dann das für die nächste Schicht Vorhergesagte.</translation>
</message>
<message>
<source>Remembers which experts past requests used and fetches what the most similar ones did; one pool for all layers.</source>
<translation>Merkt sich, welche Experten frühere Anfragen nutzten, und holt, was die ähnlichsten brauchten; ein Vorrat für alle Schichten.</translation>
</message>
<message>
<source>For many requests at once: computes an expert for all their tokens, hot ones first, while others are read; the hottest stay in memory or are fetched ahead.</source>
<translation>Für viele Anfragen zugleich: berechnet einen Experten für alle ihre Token, die meistgenutzten zuerst, während andere gelesen werden; die meistgenutzten bleiben im Speicher oder werden vorausgeladen.</translation>
</message>
<message>
<source>A step of Klotski&apos;s ablation: the whole next layer is fetched ahead, in the router&apos;s order.</source>
<translation>Ein Schritt der Ablation von Klotski: Die ganze nächste Schicht wird vorausgeladen, in der Reihenfolge des Routers.</translation>
</message>
<message>
<source>The next step: only the hottest experts are fetched ahead, still in the router&apos;s order.</source>
<translation>Der nächste Schritt: Nur die meistgenutzten Experten werden vorausgeladen, noch in der Reihenfolge des Routers.</translation>
</message>
<message>
<source>The last step, Klotski as in the paper: the leading layers stay in memory, and the experts that most tokens need are computed first.</source>
<translation>Der letzte Schritt, Klotski wie in der Veröffentlichung: Die ersten Schichten bleiben im Speicher, und die Experten, die die meisten Token brauchen, werden zuerst berechnet.</translation>
</message>
<message>
<source>Reads an expert when its turn to be computed comes, and keeps the most recently used.</source>
<translation>Liest einen Experten, wenn er mit dem Rechnen dran ist, und behält die zuletzt benutzten.</translation>
</message>
<message>
<source>As lru, but at the gate all missing experts are ordered, and computed as they arrive.</source>
<translation>Wie lru, aber am Gate werden alle fehlenden Experten bestellt und berechnet, wie sie eintreffen.</translation>
</message>
<message>
<source>Reads an expert when its turn to be computed comes, and keeps the most often used.</source>
<translation>Liest einen Experten, wenn er mit dem Rechnen dran ist, und behält die am häufigsten benutzten.</translation>
</message>
<message>
<source>Keeps a fixed set, the most used of the first tokens; others pass through.</source>
<translation>Behält eine feste Auswahl, die meistgenutzten der ersten Token; andere gehen nur durch.</translation>
</message>
<message>
<source>Reads an expert when its turn to be computed comes; any one may leave.</source>
<translation>Liest einen Experten, wenn er mit dem Rechnen dran ist; weichen muss irgendeiner.</translation>
</message>
<message>
<source>Stock llama.cpp: the operating system pages the file in and out.</source>
<translation>llama.cpp unverändert: Das Betriebssystem lagert die Datei ein und aus.</translation>
</message>
<message>
<source>Stock llama.cpp: the experts are computed by the processor, where they lie.</source>
<translation>llama.cpp unverändert: Der Prozessor berechnet die Experten, wo sie liegen.</translation>
</message>
<message>
<source>The first step of ProMoE&apos;s ablation: prefetching, and nothing else.</source>
<translation>Der erste Schritt der Ablation von ProMoE: Vorausladen und sonst nichts.</translation>
</message>
<message>
<source>The second step: prefetching matrix by matrix.</source>
<translation>Der zweite Schritt: Vorausladen Matrix für Matrix.</translation>
</message>
<message>
<source>The third step: needed experts overtake predicted ones.</source>
<translation>Der dritte Schritt: Gebrauchte Experten überholen vorhergesagte.</translation>
</message>
<message>
<source>The fourth step: what is ready is computed first.</source>
<translation>Der vierte Schritt: Was fertig ist, wird zuerst berechnet.</translation>
</message>
<message>
<source>The optimal eviction: what is needed last leaves. It knows the trace.</source>
<translation>Die optimale Verdrängung: Was zuletzt gebraucht wird, geht. Sie kennt die Aufzeichnung.</translation>
</message>
<message>
<source>Perfect prediction far ahead, with the optimal eviction. It knows the trace.</source>
<translation>Vollkommene Vorhersage weit voraus, mit der optimalen Verdrängung. Sie kennt die Aufzeichnung.</translation>
</message>
<message>
<source>A remote device is written rpc://host:port, not {given}.</source>
<translation>Ein Gerät auf einem anderen Rechner schreibt man rpc://rechner:port, nicht {given}.</translation>
</message>
<message>
<source>What answers at {address} is no rpc server of llama.cpp.</source>
<translation>Was unter {address} antwortet, ist kein RPC-Server von llama.cpp.</translation>
</message>
<message>
<source>The device server at {address} does not answer; it may be serving somebody else.</source>
<translation>Der Geräteserver unter {address} antwortet nicht; vielleicht bedient er gerade jemand anderen.</translation>
</message>
<message>
<source>There is no device {device} here; known are {known}.</source>
<translation>Ein Gerät {device} gibt es hier nicht; bekannt sind {known}.</translation>
</message>
<message>
<source>No device server can be reached at {address} ({reason}).</source>
<translation>Unter {address} ist kein Geräteserver zu erreichen ({reason}).</translation>
</message>
<message>
<source>The rpc server at {address} speaks version {version} of its protocol; version {needed} is needed.</source>
<translation>Der RPC-Server unter {address} spricht Version {version} seines Protokolls; gebraucht wird Version {needed}.</translation>
</message>
<message>
<source>The device {device} cannot be combined with others.</source>
<translation>Das Gerät {device} kann nicht mit anderen verbunden werden.</translation>
</message>
<message>
<source>The device must be auto, cpu, a device&apos;s name or rpc://host:port.</source>
<translation>Das Gerät muss auto, cpu, der Name eines Geräts oder rpc://host:port sein.</translation>
</message>
<message>
<source>llama.cpp could not use the device server: {reason}.</source>
<translation>llama.cpp konnte den Geräteserver nicht verwenden: {reason}.</translation>
</message>
<message>
<source>its architecture {architecture} is not known to llama.cpp</source>
<translation>llama.cpp kennt ihre Architektur {architecture} nicht</translation>
</message>
<message>
<source>it is a diffusion model ({architecture}), which fills in a whole answer at once; only models that write token by token can be used</source>
<translation>sie ist ein Diffusionsmodell ({architecture}), das eine ganze Antwort auf einmal ausfüllt; nur Modelle, die Token für Token schreiben, sind verwendbar</translation>
</message>
<message>
<source>the tensor {tensor} has a value that is NaN or infinite</source>
<translation>der Tensor {tensor} enthält einen Wert, der NaN oder unendlich ist</translation>
</message>
<message>
<source>the tensor {tensor} has a value that is NaN or infinite, in block {block}</source>
<translation>der Tensor {tensor} enthält im Block {block} einen Wert, der NaN oder unendlich ist</translation>
</message>
<message>
<source>it is empty</source>
<translation>sie ist leer</translation>
</message>
<message>
<source>it is a folder</source>
<translation>es ist ein Ordner</translation>
</message>
<message>
<source>its numbers make no sense</source>
<translation>ihre Zahlen ergeben keinen Sinn</translation>
</message>
<message>
<source>it has no vocabulary, so it can read no text</source>
<translation>sie hat kein Vokabular und kann daher keinen Text lesen</translation>
</message>
<message>
<source>it is not a GGUF file, as it does not begin with the letters GGUF</source>
<translation>es ist keine GGUF-Datei, denn sie beginnt nicht mit den Buchstaben GGUF</translation>
</message>
<message>
<source>part {part} of {n} of the model is missing</source>
<translation>Teil {part} von {n} des Modells fehlt</translation>
</message>
<message>
<source>its path holds bytes that are not UTF-8; rename the file or its folder</source>
<translation>ihr Pfad enthält Bytes, die kein UTF-8 sind; benennen Sie die Datei oder ihren Ordner um</translation>
</message>
<message>
<source>it is truncated: {detail}</source>
<translation>sie ist abgeschnitten: {detail}</translation>
</message>
<message>
<source>it cannot be read ({reason})</source>
<translation>sie ist nicht lesbar ({reason})</translation>
</message>
<message>
<source>{file} cannot be used: {reason}.</source>
<translation>{file} ist nicht verwendbar: {reason}.</translation>
</message>
<message>
<source>it may not be read</source>
<translation>sie darf nicht gelesen werden</translation>
</message>
<message>
<source>the file is gone</source>
<translation>die Datei ist weg</translation>
</message>
<message>
<source>its folder {folder} {trouble}</source>
<translation>sein Ordner {folder} {trouble}</translation>
</message>
<message>
<source>may not be read</source>
<translation>darf nicht gelesen werden</translation>
</message>
<message>
<source>is not there</source>
<translation>ist nicht da</translation>
</message>
<message>
<source>cannot be read ({reason})</source>
<translation>ist nicht lesbar ({reason})</translation>
</message>
<message>
<source>The list of folders</source>
<translation>Die Liste der Ordner</translation>
</message>
<message>
<source>it is a link to a file that is gone</source>
<translation>sie ist ein Verweis auf eine Datei, die weg ist</translation>
</message>
<message>
<source>is not a folder</source>
<translation>ist kein Ordner</translation>
</message>
<message>
<source>part {part} of {n} is missing</source>
<translation>Teil {part} von {n} fehlt</translation>
</message>
<message>
<source>the parts {parts} of {n} are missing</source>
<translation>die Teile {parts} von {n} fehlen</translation>
</message>
<message>
<source>the parts {parts} and more of {n} are missing</source>
<translation>die Teile {parts} und weitere von {n} fehlen</translation>
</message>
<message>
<source>has more than {n:count} folders; the others were left out</source>
<translation>hat mehr als {n:count} Ordner; die übrigen wurden ausgelassen</translation>
</message>
<message>
<source>it is damaged ({detail})</source>
<translation>sie ist beschädigt ({detail})</translation>
</message>
<message>
<source>it is not a file of Outrider&apos;s</source>
<translation>sie ist keine Datei von Outrider</translation>
</message>
<message>
<source>it is cut short or damaged</source>
<translation>sie ist abgeschnitten oder beschädigt</translation>
</message>
<message>
<source>it is of version {version}, and this Outrider knows only up to {newest}</source>
<translation>sie hat die Version {version}, und dieser Outrider kennt nur Versionen bis {newest}</translation>
</message>
<message>
<source>there is no such folder</source>
<translation>diesen Ordner gibt es nicht</translation>
</message>
<message>
<source>there is not enough memory for it</source>
<translation>der Speicher reicht für sie nicht</translation>
</message>
<message>
<source>it is not a regular file</source>
<translation>sie ist keine gewöhnliche Datei</translation>
</message>
<message>
<source>{file} could not be written: {reason}.</source>
<translation>{file} konnte nicht geschrieben werden: {reason}.</translation>
</message>
<message>
<source>{file} cannot be read as requests: its name must end in .jsonl, .csv or .txt.</source>
<translation>{file} kann nicht als Anfragen gelesen werden: Der Name muss auf .jsonl, .csv oder .txt enden.</translation>
</message>
<message>
<source>Line {line} of {file} is no answer to a request; give another name.</source>
<translation>Zeile {line} von {file} ist keine Antwort auf eine Anfrage; geben Sie einen anderen Namen an.</translation>
</message>
<message>
<source>{file} has no column named prompt.</source>
<translation>{file} hat keine Spalte namens prompt.</translation>
</message>
<message>
<source>The line is longer than {most:size}.</source>
<translation>Die Zeile ist länger als {most:size}.</translation>
</message>
<message>
<source>The line is not UTF-8 text.</source>
<translation>Die Zeile ist kein Text in UTF-8.</translation>
</message>
<message>
<source>The line is not a JSON object.</source>
<translation>Die Zeile ist kein JSON-Objekt.</translation>
</message>
<message>
<source>A column that needs a number has none.</source>
<translation>In einer Spalte fehlt eine Zahl.</translation>
</message>
<message>
<source>The request has no body.</source>
<translation>Der Anfrage fehlt body.</translation>
</message>
<message>
<source>The URL {url} is not known; /v1/chat/completions and /v1/completions are.</source>
<translation>Die URL {url} ist nicht bekannt; bekannt sind /v1/chat/completions und /v1/completions.</translation>
</message>
<message>
<source>{n} requests are computed at once.</source>
<translation>{n} Anfragen werden zugleich berechnet.</translation>
</message>
<message>
<source>{n} requests of {cells} tokens are computed at once: memory does not permit {asked}.</source>
<translation>{n} Anfragen zu {cells} Token werden zugleich berechnet: Für {asked} reicht der Speicher nicht.</translation>
</message>
<message>
<source>This model has layers with a state, which cannot forget single tokens: sparse attention is not possible.</source>
<translation>Dieses Modell hat Schichten mit einem Zustand, der einzelne Token nicht vergessen kann: Dünne Aufmerksamkeit ist nicht möglich.</translation>
</message>
<message>
<source>Answers of this model are computed one after the other: where several share a context, llama.cpp does not compute its sparse attention.</source>
<translation>Antworten dieses Modells werden nacheinander berechnet: Wo sich mehrere einen Kontext teilen, berechnet llama.cpp seine dünne Aufmerksamkeit nicht.</translation>
</message>
<message>
<source>Requests are computed one by one: each may need {cells} tokens of memory.</source>
<translation>Anfragen werden nacheinander berechnet: Jede kann Speicher für {cells} Token brauchen.</translation>
</message>
<message>
<source>{n} requests are computed at once: with fewer, computing would wait for the drive (inequality {binding} of Klotski).</source>
<translation>{n} Anfragen werden zugleich berechnet: Mit weniger müsste das Rechnen auf das Laufwerk warten (Ungleichung {binding} von Klotski).</translation>
</message>
<message>
<source>{n} requests are computed at once, but the drive stays slower than computing (inequality {binding} of Klotski); a higher cache rate would help.</source>
<translation>{n} Anfragen werden zugleich berechnet, aber das Laufwerk bleibt langsamer als das Rechnen (Ungleichung {binding} von Klotski); eine höhere Cache-Rate würde helfen.</translation>
</message>
<message>
<source>{n} requests are computed at once: {n_paper} would hide the drive, and more of them compute faster together.</source>
<translation>{n} Anfragen werden zugleich berechnet: {n_paper} würden das Laufwerk verdecken, und mehr rechnen gemeinsam schneller.</translation>
</message>
<message>
<source>{n} requests are computed at once, in as few rounds as memory permits; {n_paper} would hide the drive.</source>
<translation>{n} Anfragen werden zugleich berechnet, in so wenigen Runden, wie der Speicher zulässt; {n_paper} würden das Laufwerk verdecken.</translation>
</message>
<message>
<source>Their prompts are equally long, so each has an attention cache of its own.</source>
<translation>Ihre Prompts sind gleich lang, deshalb hat jede einen eigenen Attention-Cache.</translation>
</message>
<message>
<source>Layer {layer} of the model computed NaN or infinite values, so the answer was stopped: {reason}.</source>
<translation>Schicht {layer} des Modells hat NaN oder unendliche Werte berechnet, daher wurde die Antwort beendet: {reason}.</translation>
</message>
<message>
<source>{file} changed while it was read. Check it again when nothing writes to it.</source>
<translation>{file} hat sich geändert, während sie gelesen wurde. Prüfen Sie sie noch einmal, wenn nichts mehr hineinschreibt.</translation>
</message>
<message>
<source>{file} is damaged or was changed: its SHA-256 is not what {source} states.</source>
<translation>{file} ist beschädigt oder wurde geändert: Die SHA-256 ist nicht die, die {source} angibt.</translation>
</message>
<message>
<source>{file} is complete and unchanged: its SHA-256 is what {source} states.</source>
<translation>{file} ist vollständig und unverändert: Die SHA-256 ist die, die {source} angibt.</translation>
</message>
<message>
<source>All {n} parts are complete and unchanged: their SHA-256 are what {source} states.</source>
<translation>Alle {n} Teile sind vollständig und unverändert: Ihre SHA-256 sind die, die {source} angibt.</translation>
</message>
<message>
<source>Download it again.</source>
<translation>Laden Sie die Datei noch einmal herunter.</translation>
</message>
<message>
<source>its repository</source>
<translation>ihr Repository</translation>
</message>
<message>
<source>The check was stopped.</source>
<translation>Die Prüfung wurde abgebrochen.</translation>
</message>
<message>
<source>The origin of {file} is not known. Compare its SHA-256 with the one that the page of its repository shows.</source>
<translation>Die Herkunft von {file} ist nicht bekannt. Vergleichen Sie die SHA-256 mit der, die auf der Seite des Repositorys steht.</translation>
</message>
<message>
<source>Memory for the dense part of {dense:size} lacks {missing:size}: it is read from the file again and again, which is slow.</source>
<translation>Für den dichten Teil von {dense:size} fehlen {missing:size} Speicher: Er wird immer wieder aus der Datei gelesen, was langsam ist.</translation>
</message>
<message>
<source>{n} requests are computed at once, in as few rounds as memory permits. What is measured meanwhile plans the next group.</source>
<translation>{n} Anfragen werden zugleich berechnet, in so wenigen Runden, wie der Speicher zulässt. Was dabei gemessen wird, plant die nächste Gruppe.</translation>
</message>
<message>
<source>A text is empty.</source>
<translation>Ein Text ist leer.</translation>
</message>
<message>
<source>{file} is neither text, a PDF, an image nor a document that can be read. Save it as PDF or text.</source>
<translation>{file} ist weder Text noch PDF, Bild oder ein Dokument, das gelesen werden kann. Speichern Sie die Datei als PDF oder Text.</translation>
</message>
<message>
<source>{file} is a damaged document. Save it again, or as PDF.</source>
<translation>{file} ist ein beschädigtes Dokument. Speichern Sie es noch einmal, oder als PDF.</translation>
</message>
<message>
<source>{file} has no text in it.</source>
<translation>{file} enthält keinen Text.</translation>
</message>
<message>
<source>{file} is encrypted, or of an old Office. Save it without a password as .docx, .xlsx, .pptx or PDF.</source>
<translation>{file} ist verschlüsselt oder von einem alten Office. Speichern Sie die Datei ohne Kennwort als .docx, .xlsx, .pptx oder PDF.</translation>
</message>
<message>
<source>{file} is a {kind} image, which cannot be read here. Save it as PNG or JPEG, and attach that.</source>
<translation>{file} ist ein {kind}-Bild, das hier nicht gelesen werden kann. Speichern Sie es als PNG oder JPEG, und hängen Sie das an.</translation>
</message>
<message>
<source>llama.cpp could not compute a text.</source>
<translation>llama.cpp konnte einen Text nicht berechnen.</translation>
</message>
<message>
<source>{file} is no model for embeddings: it names no pooling.</source>
<translation>{file} ist kein Modell für Embeddings: Es nennt kein Pooling.</translation>
</message>
<message>
<source>The embedding of a text has values that are not finite.</source>
<translation>Das Embedding eines Textes hat Werte, die nicht endlich sind.</translation>
</message>
<message>
<source>{file} ranks documents and makes no embeddings.</source>
<translation>{file} ordnet Dokumente und macht keine Embeddings.</translation>
</message>
<message>
<source>{file} makes embeddings and ranks no documents.</source>
<translation>{file} macht Embeddings und ordnet keine Dokumente.</translation>
</message>
<message>
<source>A text has {n:count} characters, too many for {n_token:count} tokens.</source>
<translation>Ein Text hat {n:count} Zeichen, zu viele für {n_token:count} Tokens.</translation>
</message>
<message>
<source>This copy was made without an address to look for newer versions.</source>
<translation>Diese Kopie wurde ohne eine Adresse für neuere Versionen gemacht.</translation>
</message>
<message>
<source>A part of this program is missing or damaged ({reason}). Install it again.</source>
<translation>Ein Teil dieses Programms fehlt oder ist beschädigt ({reason}). Installieren Sie es neu.</translation>
</message>
<message>
<source>Something unexpected failed ({kind}: {reason}).</source>
<translation>Etwas scheiterte unerwartet ({kind}: {reason}).</translation>
</message>
<message>
<source>something unexpected failed ({kind}: {reason})</source>
<translation>etwas scheiterte unerwartet ({kind}: {reason})</translation>
</message>
<message>
<source>llama.cpp does not tell its hidden states</source>
<translation>llama.cpp gibt seine inneren Zustände nicht heraus</translation>
</message>
<message>
<source>The layer of {file} that predicts further words guesses nothing: {reason}.</source>
<translation>Die Schicht von {file}, die weitere Wörter vorhersagt, rät nichts: {reason}.</translation>
</message>
<message>
<source>llama.cpp computes no such layer of {architecture}</source>
<translation>llama.cpp berechnet keine solche Schicht von {architecture}</translation>
</message>
<message>
<source>llama.cpp cannot take a token of {architecture} back</source>
<translation>llama.cpp kann ein Token von {architecture} nicht zurücknehmen</translation>
</message>
<message>
<source>parts of it are missing</source>
<translation>Teile davon fehlen</translation>
</message>
<message>
<source>llama.cpp computes such a layer of {architecture} only where it is the only one</source>
<translation>llama.cpp berechnet eine solche Schicht von {architecture} nur, wenn sie die einzige ist</translation>
</message>
<message>
<source>with its states that is possible for one request at a time only</source>
<translation>mit seinen Zuständen geht das nur für eine Anfrage auf einmal</translation>
</message>
<message>
<source>with recurrent states that is possible in memory only</source>
<translation>mit rekurrenten Zuständen geht das nur im Arbeitsspeicher</translation>
</message>
<message>
<source>The model&apos;s layer that predicts further words runs on the processor only, so only repetitions are guessed.</source>
<translation>Die Schicht des Modells, die weitere Wörter vorhersagt, läuft nur auf dem Prozessor, deshalb werden nur Wiederholungen geraten.</translation>
</message>
<message>
<source>Memory for the model&apos;s layer that predicts further words lacks {missing:size}, so only repetitions are guessed.</source>
<translation>Für die Schicht des Modells, die weitere Wörter vorhersagt, fehlen {missing:size} Speicher, deshalb werden nur Wiederholungen geraten.</translation>
</message>
<message>
<source>{model} was converted without what images need. Take a newer file of this model.</source>
<translation>{model} wurde ohne das umgewandelt, was Bilder brauchen. Nehmen Sie eine neuere Datei dieses Modells.</translation>
</message>
<message>
<source>An image needs {n:count} tokens in one pass, but memory permits only {most:count}.</source>
<translation>Ein Bild braucht {n:count} Tokens in einem Durchgang, aber der Speicher erlaubt nur {most:count}.</translation>
</message>
<message>
<source>{rate:percent} of the experts are in memory, {n:count} of each layer, chosen by the method {method}.</source>
<translation>{rate:percent} der Experten sind im Speicher, {n:count} von jeder Schicht, gewählt von der Methode {method}.</translation>
</message>
<message>
<source>Every expert is in memory, so no answer waits for the disk.</source>
<translation>Alle Experten sind im Speicher, also wartet keine Antwort auf das Laufwerk.</translation>
</message>
<message>
<source>llama.cpp runs without the expert cache.</source>
<translation>llama.cpp läuft ohne den Experten-Cache.</translation>
</message>
<message>
<source>A cache would save only {saved:size}, so llama.cpp runs unpatched, which is faster.</source>
<translation>Ein Cache würde nur {saved:size} sparen, darum läuft llama.cpp unverändert, was schneller ist.</translation>
</message>
<message>
<source>llama.cpp runs unpatched, which is faster where the whole model fits into memory.</source>
<translation>llama.cpp läuft unverändert, was schneller ist, wo das ganze Modell in den Speicher passt.</translation>
</message>
<message>
<source>it is no {kind} file, but says that it is {found}</source>
<translation>sie ist keine Datei der Art {kind}, sondern nennt sich {found}</translation>
</message>
<message>
<source>it was made for another model</source>
<translation>sie wurde für ein anderes Modell gemacht</translation>
</message>
<message>
<source>it was made for a model of other sizes</source>
<translation>sie wurde für ein Modell anderer Größe gemacht</translation>
</message>
<message>
<source>its name is not valid</source>
<translation>ihr Name ist ungültig</translation>
</message>
<message>
<source>it became shorter while it was read</source>
<translation>sie wurde kürzer, während sie gelesen wurde</translation>
</message>
<message>
<source>there is something else of that name</source>
<translation>etwas anderes trägt diesen Namen</translation>
</message>
<message>
<source>it is cut short</source>
<translation>sie ist abgeschnitten</translation>
</message>
<message>
<source>it is of the predictor {name}</source>
<translation>sie gehört zur Vorhersage {name}</translation>
</message>
<message>
<source>it is too large for a predictor</source>
<translation>sie ist zu groß für eine Vorhersage</translation>
</message>
<message>
<source>its contents make no predictor ({detail})</source>
<translation>ihr Inhalt ergibt keine Vorhersage ({detail})</translation>
</message>
<message>
<source>it is of a predictor called {name}, which this Outrider does not know</source>
<translation>sie gehört zu einer Vorhersage namens {name}, die dieser Outrider nicht kennt</translation>
</message>
<message>
<source>{file} is damaged: expert {expert} of layer {layer} is not what was written. Delete it or write it again.</source>
<translation>{file} ist beschädigt: Experte {expert} der Schicht {layer} ist nicht der geschriebene. Löschen oder schreiben Sie sie neu.</translation>
</message>
<message>
<source>its file {file} is missing; connect that drive, or write the pack again</source>
<translation>ihre Datei {file} fehlt; schließen Sie dieses Laufwerk an, oder schreiben Sie das Paket neu</translation>
</message>
<message>
<source>its file {file} is of another pack, or damaged</source>
<translation>ihre Datei {file} gehört zu einem anderen Pack oder ist beschädigt</translation>
</message>
<message>
<source>The folder {folder} is named twice.</source>
<translation>Der Ordner {folder} ist zweimal genannt.</translation>
</message>
<message>
<source>This processor computes this model&apos;s experts fastest as they are.</source>
<translation>Dieser Prozessor berechnet die Experten dieses Modells so am schnellsten, wie sie sind.</translation>
</message>
<message>
<source>{file} is in use, and cannot be replaced. Unload the model, then write the pack again.</source>
<translation>{file} wird benutzt und kann nicht ersetzt werden. Geben Sie das Modell frei und schreiben Sie das Paket dann noch einmal.</translation>
</message>
<message>
<source>{file} is being written by another program.</source>
<translation>{file} wird gerade von einem anderen Programm geschrieben.</translation>
</message>
<message>
<source>the model&apos;s file has become shorter</source>
<translation>die Datei des Modells ist kürzer geworden</translation>
</message>
<message>
<source>this processor computes this model&apos;s experts fastest as they are</source>
<translation>dieser Prozessor berechnet die Experten dieses Modells so am schnellsten, wie sie sind</translation>
</message>
<message>
<source>This model has no experts to pack.</source>
<translation>Dieses Modell hat keine Experten zum Packen.</translation>
</message>
<message>
<source>There is no folder {folder}.</source>
<translation>Es gibt keinen Ordner {folder}.</translation>
</message>
<message>
<source>it is no pack, or a damaged one</source>
<translation>sie ist kein Pack oder ein beschädigter</translation>
</message>
<message>
<source>{file} needs {needed:size}, and only {free:size} are free in {folder}.</source>
<translation>{file} braucht {needed:size}, und in {folder} sind nur {free:size} frei.</translation>
</message>
<message>
<source>The gain of a pack could not be measured: {reason}.</source>
<translation>Der Gewinn durch einen Pack konnte nicht gemessen werden: {reason}.</translation>
</message>
<message>
<source>{file} is not used: {reason}.</source>
<translation>{file} wird nicht verwendet: {reason}.</translation>
</message>
<message>
<source>it was made for another processor or llama.cpp</source>
<translation>sie wurde für einen anderen Prozessor oder ein anderes llama.cpp gemacht</translation>
</message>
<message>
<source>another version of Outrider made it</source>
<translation>eine andere Version von Outrider hat sie geschrieben</translation>
</message>
<message>
<source>The drive of {folder} is too slow to help: {speed:size} per second, and another one reads {others:size}.</source>
<translation>Das Laufwerk von {folder} ist zu langsam, um zu nützen: {speed:size} in der Sekunde, und ein anderes liest {others:size}.</translation>
</message>
<message>
<source>its drive reads {pack:size} per second, the model&apos;s {model:size}</source>
<translation>ihr Laufwerk liest {pack:size} pro Sekunde, das des Modells {model:size}</translation>
</message>
<message>
<source>Packing was stopped; it continues there when it is asked for again.</source>
<translation>Das Packen wurde angehalten; beim nächsten Mal geht es dort weiter.</translation>
</message>
<message>
<source>{reason}; write the pack again</source>
<translation>{reason}; schreiben Sie das Paket neu</translation>
</message>
<message>
<source>general.alignment is {n}, which is not a power of two from 8 to {most}</source>
<translation>general.alignment ist {n}, keine Zweierpotenz von 8 bis {most}</translation>
</message>
<message>
<source>general.alignment is not an unsigned 32-bit integer</source>
<translation>general.alignment ist keine vorzeichenlose ganze Zahl mit 32 Bit</translation>
</message>
<message>
<source>{what} is an array of arrays, which is not allowed</source>
<translation>{what} ist ein Array von Arrays, was nicht erlaubt ist</translation>
</message>
<message>
<source>{what} is an array of the unknown value type {type}</source>
<translation>{what} ist ein Array vom unbekannten Werttyp {type}</translation>
</message>
<message>
<source>it became shorter while it was read, inside {what}</source>
<translation>sie wurde kürzer, während sie gelesen wurde ({what})</translation>
</message>
<message>
<source>it is incomplete: {n:size} of at least {end:size} are here ({what} is missing); download it again</source>
<translation>sie ist unvollständig: {n:size} von mindestens {end:size} sind hier ({what} fehlt); laden Sie sie noch einmal herunter</translation>
</message>
<message>
<source>it is written in big-endian byte order, which is not supported</source>
<translation>sie ist in Big-Endian-Reihenfolge geschrieben, die nicht unterstützt wird</translation>
</message>
<message>
<source>it was changed while it was read</source>
<translation>sie wurde geändert, während sie gelesen wurde</translation>
</message>
<message>
<source>{what} claims {n} items, more than the file has room for</source>
<translation>{what} gibt {n} Einträge an, mehr als in die Datei passen</translation>
</message>
<message>
<source>{what} claims {n} bytes, more than the file has left</source>
<translation>{what} gibt {n} Bytes an, mehr als in der Datei noch folgen</translation>
</message>
<message>
<source>{what} claims {n} bytes, and {most} are allowed</source>
<translation>{what} gibt {n} Bytes an, und {most} sind erlaubt</translation>
</message>
<message>
<source>a dimension of {what}</source>
<translation>eine Dimension ({what})</translation>
</message>
<message>
<source>{what} has {n} dimensions, not 1 to {most}</source>
<translation>{what} hat {n} Dimensionen, nicht 1 bis {most}</translation>
</message>
<message>
<source>{what} is empty</source>
<translation>{what} ist leer</translation>
</message>
<message>
<source>it ends inside {what}</source>
<translation>sie endet mittendrin ({what})</translation>
</message>
<message>
<source>the offset of {what} is {offset}, not {expected}: it leaves a gap before</source>
<translation>{what} beginnt bei {offset}, nicht bei {expected}: davor ist eine Lücke</translation>
</message>
<message>
<source>{what} is {n}, and more than {most} is not plausible</source>
<translation>{what} ist {n}, und mehr als {most} ist nicht plausibel</translation>
</message>
<message>
<source>item {n} of {what}</source>
<translation>Eintrag {n} ({what})</translation>
</message>
<message>
<source>the item type of {what}</source>
<translation>der Typ der Einträge ({what})</translation>
</message>
<message>
<source>the metadata key {key}</source>
<translation>der Metadatenschlüssel {key}</translation>
</message>
<message>
<source>the name of metadata key {n}</source>
<translation>der Name des Metadatenschlüssels {n}</translation>
</message>
<message>
<source>the length of {what}</source>
<translation>die Länge ({what})</translation>
</message>
<message>
<source>its header is longer than {most:size} at {what}</source>
<translation>ihr Kopf ist länger als {most:size} ({what})</translation>
</message>
<message>
<source>the magic bytes</source>
<translation>die ersten Bytes</translation>
</message>
<message>
<source>{what} has {n} strings, and {most} in all are allowed</source>
<translation>{what} hat {n} Zeichenketten, und insgesamt sind {most} erlaubt</translation>
</message>
<message>
<source>the number of dimensions of {what}</source>
<translation>die Zahl der Dimensionen ({what})</translation>
</message>
<message>
<source>the number of metadata keys</source>
<translation>die Zahl der Metadatenschlüssel</translation>
</message>
<message>
<source>the number of tensors</source>
<translation>die Zahl der Tensoren</translation>
</message>
<message>
<source>{what} has {n} bytes, not 1 to {most}</source>
<translation>{what} hat {n} Bytes, nicht 1 bis {most}</translation>
</message>
<message>
<source>{what} is not valid UTF-8</source>
<translation>{what} ist kein gültiges UTF-8</translation>
</message>
<message>
<source>the offset of {what}</source>
<translation>der Anfang ({what})</translation>
</message>
<message>
<source>the dimensions of {what} overflow: they multiply to {n} values</source>
<translation>{what} hat zu große Dimensionen: das Produkt sind {n} Werte</translation>
</message>
<message>
<source>the offset of {what} is {offset}, not {expected}: it overlaps the one before</source>
<translation>{what} beginnt bei {offset}, nicht bei {expected}: er überlappt den davor</translation>
</message>
<message>
<source>{what} has rows of {n} values, which are not whole {type} blocks of {block}</source>
<translation>{what} hat Zeilen von {n} Werten, keine ganzen {type}-Blöcke von {block}</translation>
</message>
<message>
<source>an item of {what}</source>
<translation>ein Eintrag ({what})</translation>
</message>
<message>
<source>the tensor {tensor}</source>
<translation>der Tensor {tensor}</translation>
</message>
<message>
<source>the name of tensor {n}</source>
<translation>der Name des Tensors {n}</translation>
</message>
<message>
<source>{what} has the unknown tensor type {type}</source>
<translation>{what} hat den unbekannten Tensortyp {type}</translation>
</message>
<message>
<source>{what} is {n}, and the file is too short for that</source>
<translation>{what} ist {n}, und dafür ist die Datei zu kurz</translation>
</message>
<message>
<source>{what} appears twice</source>
<translation>{what} kommt zweimal vor</translation>
</message>
<message>
<source>the type of {what}</source>
<translation>der Typ ({what})</translation>
</message>
<message>
<source>{what} has the unknown value type {type}</source>
<translation>{what} hat den unbekannten Werttyp {type}</translation>
</message>
<message>
<source>the version</source>
<translation>die Version</translation>
</message>
<message>
<source>its GGUF version is {version}, and only 2 and 3 are supported</source>
<translation>ihre GGUF-Version ist {version}, und nur 2 und 3 werden unterstützt</translation>
</message>
<message>
<source>{what} has a dimension of zero</source>
<translation>{what} hat eine Dimension mit null Werten</translation>
</message>
<message>
<source>{key} is {n}, no divisor of {all} experts</source>
<translation>{key} ist {n}, kein Teiler von {all} Experten</translation>
</message>
<message>
<source>{key} is {n}, and {n} heads of {size} values do not make the {all} needed</source>
<translation>{key} ist {n}, und {n} Köpfe mit {size} Werten ergeben nicht die nötigen {all}</translation>
</message>
<message>
<source>{key} is {value}, and llama.cpp cannot rotate keys of this length</source>
<translation>{key} ist {value}, und llama.cpp kann Schlüssel dieser Länge nicht drehen</translation>
</message>
<message>
<source>{key} is {value}, but positions turn {n} values of each key</source>
<translation>{key} ist {value}, aber Positionen drehen {n} Werte jedes Schlüssels</translation>
</message>
<message>
<source>{key} has {n} items for {layers} layers</source>
<translation>{key} hat {n} Einträge für {layers} Schichten</translation>
</message>
<message>
<source>{key} is missing</source>
<translation>{key} fehlt</translation>
</message>
<message>
<source>{key} is not a string</source>
<translation>{key} ist keine Zeichenkette</translation>
</message>
<message>
<source>{key} is not a whole number</source>
<translation>{key} ist keine ganze Zahl</translation>
</message>
<message>
<source>{key} is {value}, and {low} to {high} is allowed</source>
<translation>{key} ist {value}, und {low} bis {high} ist erlaubt</translation>
</message>
<message>
<source>{key} is not of the type {type}</source>
<translation>{key} ist nicht vom Typ {type}</translation>
</message>
<message>
<source>{what} belongs to a layer beyond the {n} layers</source>
<translation>{what} gehört zu einer Schicht jenseits der {n} Schichten</translation>
</message>
<message>
<source>split.count is {n}, and {most} are allowed</source>
<translation>split.count ist {n}, und {most} sind erlaubt</translation>
</message>
<message>
<source>{what} holds {n} experts, but expert_count is {all}</source>
<translation>{what} enthält {n} Experten, aber expert_count ist {all}</translation>
</message>
<message>
<source>{key} is {value}, and has to be 0 or more</source>
<translation>{key} ist {value} und muss mindestens 0 sein</translation>
</message>
<message>
<source>{key} gives none of the {n} layers attention over the whole context</source>
<translation>{key} gibt keiner der {n} Schichten Aufmerksamkeit über den ganzen Kontext</translation>
</message>
<message>
<source>it has no tensors</source>
<translation>sie hat keine Tensoren</translation>
</message>
<message>
<source>{key} gives none of the {n} layers a window</source>
<translation>{key} gibt keiner der {n} Schichten ein Fenster</translation>
</message>
<message>
<source>{key} is {value}, which is not a finite number</source>
<translation>{key} ist {value}, keine endliche Zahl</translation>
</message>
<message>
<source>{key} is {value}, and has to be more than 0</source>
<translation>{key} ist {value} und muss größer als 0 sein</translation>
</message>
<message>
<source>{key} does not say that it is part {part} of {n} of the model</source>
<translation>nach {key} ist sie nicht Teil {part} von {n} des Modells</translation>
</message>
<message>
<source>it begins as part {part} of {n}, and other parts were put behind it; such parts cannot be joined in this way: open the first of them as it was downloaded, beside the others</source>
<translation>sie beginnt als Teil {part} von {n}, und andere Teile wurden dahinter gehängt; solche Teile lassen sich so nicht verbinden: öffnen Sie den ersten, wie er heruntergeladen wurde, neben den anderen</translation>
</message>
<message>
<source>it is part {part} of {n}, so its name has to end in {ending}</source>
<translation>sie ist Teil {part} von {n}, also muss ihr Name auf {ending} enden</translation>
</message>
<message>
<source>split.no is {number}, but the model has {n} parts</source>
<translation>split.no ist {number}, aber das Modell hat {n} Teile</translation>
</message>
<message>
<source>it is part of another model, as {key} differs</source>
<translation>sie ist Teil eines anderen Modells, denn {key} ist anders</translation>
</message>
<message>
<source>it is a piece of a file that was cut; join all pieces in their order into {whole}, as with: {command}</source>
<translation>sie ist ein Stück einer zerteilten Datei; verbinden Sie alle Stücke der Reihe nach zu {whole}, etwa mit: {command}</translation>
</message>
<message>
<source>split.tensors.count is {n}, but its {parts} parts have {found}</source>
<translation>split.tensors.count ist {n}, aber ihre {parts} Teile haben {found}</translation>
</message>
<message>
<source>the tensor {tensor} is in part {part} as well</source>
<translation>der Tensor {tensor} ist auch in Teil {part}</translation>
</message>
<message>
<source>{key} makes the shared experts {wanted} wide, but {what} is {n} wide; llama.cpp does not load it</source>
<translation>nach {key} sind die gemeinsamen Experten {wanted} breit, aber {what} ist {n} breit; llama.cpp lädt das nicht</translation>
</message>
<message>
<source>{what} has {n} dimensions instead of 3</source>
<translation>{what} hat {n} Dimensionen statt 3</translation>
</message>
<message>
<source>{what} is of the type {type}, with which llama.cpp cannot compute</source>
<translation>{what} ist vom Typ {type}, mit dem llama.cpp nicht rechnen kann</translation>
</message>
<message>
<source>the token {token} appears twice in its vocabulary</source>
<translation>das Token {token} steht zweimal in seinem Vokabular</translation>
</message>
<message>
<source>{key} is missing or zero, but expert_count is {all}</source>
<translation>{key} fehlt oder ist null, aber expert_count ist {all}</translation>
</message>
<message>
<source>{key} is {n}, more than expert_count, which is {all}</source>
<translation>{key} ist {n}, mehr als expert_count mit {all}</translation>
</message>
<message>
<source>{key} is {value}, but has to be {n}, as many as the keys of a head</source>
<translation>{key} ist {value}, muss aber {n} sein, so viele wie die Schlüssel eines Kopfs</translation>
</message>
<message>
<source>&apos;{given}&apos; is neither a repository, such as owner/name, nor an address.</source>
<translation>„{given}“ ist weder ein Repository wie besitzer/name noch eine Adresse.</translation>
</message>
<message>
<source>{host} gave an answer that was not expected (HTTP {status}).</source>
<translation>{host} gab eine unerwartete Antwort (HTTP {status}).</translation>
</message>
<message>
<source>{host} redirects to an address that cannot be used.</source>
<translation>{host} leitet zu einer Adresse um, die unbrauchbar ist.</translation>
</message>
<message>
<source>The connection to {host} broke.</source>
<translation>Die Verbindung zu {host} brach ab.</translation>
</message>
<message>
<source>The file on {host} is no longer the one that was listed.</source>
<translation>Die Datei auf {host} ist nicht mehr die, die aufgelistet war.</translation>
</message>
<message>
<source>{host} redirects again and again, and never to a file.</source>
<translation>{host} leitet immer wieder um, und nie zu einer Datei.</translation>
</message>
<message>
<source>{file} arrived damaged: its checksum is not the one that {host} states. It has to be fetched again.</source>
<translation>{file} kam beschädigt an: Ihre Prüfsumme ist nicht die, die {host} nennt. Sie muss noch einmal geholt werden.</translation>
</message>
<message>
<source>{host} has disabled this repository.</source>
<translation>{host} hat dieses Repository gesperrt.</translation>
</message>
<message>
<source>The drive of {folder} is full. What has arrived is kept.</source>
<translation>Das Laufwerk von {folder} ist voll. Was da ist, bleibt erhalten.</translation>
</message>
<message>
<source>{host} sends the file compressed, which was not asked for.</source>
<translation>{host} sendet die Datei komprimiert, was nicht verlangt war.</translation>
</message>
<message>
<source>{host} refuses the address (HTTP {status}), which was valid until {at:clock}. Copy a new one from where you found it.</source>
<translation>{host} lehnt die Adresse ab (HTTP {status}); sie galt bis {at:clock}. Kopieren Sie eine neue von dort, wo Sie sie fanden.</translation>
</message>
<message>
<source>The download failed: {reason}.</source>
<translation>Der Download scheiterte: {reason}.</translation>
</message>
<message>
<source>There is another file named {file} in {folder}.</source>
<translation>In {folder} ist schon eine andere Datei namens {file}.</translation>
</message>
<message>
<source>{host} lets only browsers in at the moment (HTTP {status}).</source>
<translation>{host} lässt zurzeit nur Browser ein (HTTP {status}).</translation>
</message>
<message>
<source>The list of downloads</source>
<translation>Die Liste der Downloads</translation>
</message>
<message>
<source>{host} does not give this for reasons of law (HTTP {status}).</source>
<translation>{host} gibt dies aus rechtlichen Gründen nicht heraus (HTTP {status}).</translation>
</message>
<message>
<source>Another window or program is downloading this file.</source>
<translation>Ein anderes Fenster oder Programm lädt diese Datei gerade herunter.</translation>
</message>
<message>
<source>{address} is not an address to download from.</source>
<translation>Von {address} kann nichts geholt werden, denn es ist keine Adresse.</translation>
</message>
<message>
<source>The address does not end in the name of a GGUF file.</source>
<translation>Die Adresse endet nicht mit dem Namen einer GGUF-Datei.</translation>
</message>
<message>
<source>There is no GGUF model in {place}.</source>
<translation>In {place} ist kein GGUF-Modell.</translation>
</message>
<message>
<source>The repository on {host} has no such revision.</source>
<translation>Das Repository auf {host} hat diesen Stand nicht.</translation>
</message>
<message>
<source>There is too little room on the drive of {folder}: {needed:size} are needed and {margin:size} to spare, and {free:size} are free.</source>
<translation>Auf dem Laufwerk von {folder} ist zu wenig Platz: {needed:size} werden gebraucht und {margin:size} als Reserve, und {free:size} sind frei.</translation>
</message>
<message>
<source>{host} sent an answer that makes no sense.</source>
<translation>{host} sandte eine sinnlose Antwort.</translation>
</message>
<message>
<source>{host} does not say how large the file is.</source>
<translation>{host} sagt nicht, wie groß die Datei ist.</translation>
</message>
<message>
<source>{place} no longer has {file}. Search for its name to find others like it.</source>
<translation>{place} hat {file} nicht mehr. Eine Suche nach dem Namen findet ähnliche.</translation>
</message>
<message>
<source>What {host} sends from this address is not a GGUF file.</source>
<translation>Was {host} von dieser Adresse sendet, ist keine GGUF-Datei.</translation>
</message>
<message>
<source>Nothing can be written to {folder}.</source>
<translation>In {folder} kann nicht geschrieben werden.</translation>
</message>
<message>
<source>HF_HUB_OFFLINE is set, so nothing is downloaded.</source>
<translation>HF_HUB_OFFLINE ist gesetzt, also wird nichts heruntergeladen.</translation>
</message>
<message>
<source>{host} is out of order at the moment (HTTP {status}).</source>
<translation>{host} ist gerade gestört (HTTP {status}).</translation>
</message>
<message>
<source>it is packed ({file}), and has to be unpacked first</source>
<translation>es ist gepackt ({file}) und muss erst entpackt werden</translation>
</message>
<message>
<source>only {n} of its {all} parts are there</source>
<translation>nur {n} von {all} Teilen sind da</translation>
</message>
<message>
<source>a part of it is missing</source>
<translation>ein Teil davon fehlt</translation>
</message>
<message>
<source>{host} asks for a payment (HTTP {status}): see its page in a browser.</source>
<translation>{host} verlangt eine Zahlung (HTTP {status}): Sehen Sie dort im Browser nach.</translation>
</message>
<message>
<source>The proxy refused the connection to {host}.</source>
<translation>Der Proxy lehnte die Verbindung zu {host} ab.</translation>
</message>
<message>
<source>A file that the environment names cannot be used ({named}): {reason}.</source>
<translation>Eine Datei, die die Umgebung nennt, ist nicht verwendbar ({named}): {reason}.</translation>
</message>
<message>
<source>The proxy of the environment cannot be used: {reason}.</source>
<translation>Der Proxy der Umgebung ist nicht verwendbar: {reason}.</translation>
</message>
<message>
<source>{host} does not answer.</source>
<translation>{host} antwortet nicht.</translation>
</message>
<message>
<source>The identity of {host} cannot be checked ({reason}). Install the system&apos;s list of certificates (ca-certificates), or name another list in SSL_CERT_FILE.</source>
<translation>Die Identität von {host} lässt sich nicht prüfen ({reason}). Installieren Sie die Zertifikatsliste des Systems (ca-certificates), oder nennen Sie eine andere in SSL_CERT_FILE.</translation>
</message>
<message>
<source>{host} cannot be reached.</source>
<translation>{host} ist nicht erreichbar.</translation>
</message>
<message>
<source>Writing to {folder} failed: {reason}.</source>
<translation>Das Schreiben nach {folder} scheiterte: {reason}.</translation>
</message>
<message>
<source>{what} was damaged; {instead}.</source>
<translation>{what} war beschädigt; {instead}.</translation>
</message>
<message>
<source>{what} was damaged; {instead} and the old file is {file}.</source>
<translation>{what} war beschädigt; {instead}, und die alte Datei ist {file}.</translation>
</message>
<message>
<source>an empty one is used</source>
<translation>es wird mit einer leeren begonnen</translation>
</message>
<message>
<source>the defaults are used</source>
<translation>es gelten die Vorgaben</translation>
</message>
<message>
<source>{what} could not be read: {reason}.</source>
<translation>{what} konnte nicht gelesen werden: {reason}.</translation>
</message>
<message>
<source>{what} could not be saved: {reason}.</source>
<translation>{what} konnte nicht gespeichert werden: {reason}.</translation>
</message>
<message>
<source>The settings file</source>
<translation>Die Datei der Einstellungen</translation>
</message>
<message>
<source>MIT; the embedded model CC BY-SA 4.0</source>
<translation>MIT; das eingebaute Modell CC BY-SA 4.0</translation>
</message>
<message>
<source>Outrider is open already, and its window does not answer. End that process, then start again.</source>
<translation>Outrider ist schon geöffnet, und sein Fenster antwortet nicht. Beenden Sie diesen Prozess und starten Sie dann neu.</translation>
</message>
<message>
<source>The setting {name} must be more than {low} and at most {high}, not {value}.</source>
<translation>Die Einstellung {name} muss größer als {low} und höchstens {high} sein, nicht {value}.</translation>
</message>
<message>
<source>The setting {name} must be pairs of a token and a number from {low} to {high}.</source>
<translation>Die Einstellung {name} muss aus Paaren eines Tokens und einer Zahl von {low} bis {high} bestehen.</translation>
</message>
<message>
<source>The setting {name} must be a list of texts, and not empty.</source>
<translation>Die Einstellung {name} muss eine Liste von Texten und nicht leer sein.</translation>
</message>
<message>
<source>The setting {name} must be one of {known}, not {value}.</source>
<translation>Die Einstellung {name} muss eine von {known} sein, nicht {value}.</translation>
</message>
<message>
<source>The setting {name} must be {low} or more, not {value}.</source>
<translation>Die Einstellung {name} muss mindestens {low} sein, nicht {value}.</translation>
</message>
<message>
<source>The setting {name} must be {low} to {high}, not {value}.</source>
<translation>Die Einstellung {name} muss {low} bis {high} sein, nicht {value}.</translation>
</message>
<message>
<source>The setting {name} must be {kind}.</source>
<translation>Die Einstellung {name} muss {kind} sein.</translation>
</message>
<message>
<source>Unknown sampling setting {name}.</source>
<translation>Unbekannte Sampling-Einstellung {name}.</translation>
</message>
<message>
<source>a list of pairs, each a token and a number</source>
<translation>eine Liste von Paaren aus einem Token und einer Zahl</translation>
</message>
<message>
<source>an integer</source>
<translation>eine ganze Zahl</translation>
</message>
<message>
<source>a list of names of settings</source>
<translation>eine Liste von Namen von Einstellungen</translation>
</message>
<message>
<source>a list of texts</source>
<translation>eine Liste von Texten</translation>
</message>
<message>
<source>a number</source>
<translation>eine Zahl</translation>
</message>
<message>
<source>true or false</source>
<translation>true oder false</translation>
</message>
<message>
<source>text</source>
<translation>ein Text</translation>
</message>
<message>
<source>The file of chats was damaged; a new one was begun and the old one is {file}.</source>
<translation>Die Datei der Chats war beschädigt; eine neue wurde begonnen, und die alte ist {file}.</translation>
</message>
<message>
<source>another program uses the file</source>
<translation>ein anderes Programm benutzt die Datei</translation>
</message>
<message>
<source>The context is full.</source>
<translation>Der Kontext ist voll.</translation>
</message>
<message>
<source>Cut off here.</source>
<translation>Hier abgebrochen.</translation>
</message>
<message>
<source>the file is damaged</source>
<translation>die Datei ist beschädigt</translation>
</message>
<message>
<source>the disk is full</source>
<translation>das Laufwerk ist voll</translation>
</message>
<message>
<source>it is not a file of chats</source>
<translation>es ist keine Datei mit Chats</translation>
</message>
<message>
<source>it was written by a newer version</source>
<translation>sie stammt von einer neueren Version</translation>
</message>
<message>
<source>it is neither JSON nor Markdown from this program</source>
<translation>es ist weder JSON noch Markdown von diesem Programm</translation>
</message>
<message>
<source>{file} is not a file.</source>
<translation>{file} ist keine Datei.</translation>
</message>
<message>
<source>{file} is not UTF-8 text.</source>
<translation>{file} ist kein UTF-8-Text.</translation>
</message>
<message>
<source>Its folder {folder} does not exist.</source>
<translation>Sein Ordner {folder} existiert nicht.</translation>
</message>
<message>
<source>{host} does not let you have this (HTTP {status}).</source>
<translation>{host} gibt das nicht heraus (HTTP {status}).</translation>
</message>
<message>
<source>The network asks for a login (HTTP 511): open a page in a browser.</source>
<translation>Das Netz verlangt eine Anmeldung (HTTP 511): Öffnen Sie eine Seite in einem Browser.</translation>
</message>
<message>
<source>There is no such file on {host} (HTTP {status}).</source>
<translation>Auf {host} gibt es keine solche Datei (HTTP {status}).</translation>
</message>
<message>
<source>{host} does not send the rest of the file (HTTP {status}).</source>
<translation>{host} sendet den Rest der Datei nicht (HTTP {status}).</translation>
</message>
<message>
<source>{host} sent another part of the file than the one that was asked for.</source>
<translation>{host} sendete einen anderen Teil der Datei als den verlangten.</translation>
</message>
<message>
<source>{host} sent a web page instead. Does a browser show a login there?</source>
<translation>{host} sendete stattdessen eine Webseite. Zeigt ein Browser dort eine Anmeldung?</translation>
</message>
<message>
<source>it is there in raw pieces only ({names}), which have to be joined into one file</source>
<translation>es ist nur in rohen Stücken da ({names}), die zu einer Datei verbunden werden müssen</translation>
</message>
<message>
<source>{host}, to which {hub} redirects, refuses the file (HTTP {status}).</source>
<translation>{host}, wohin {hub} umleitet, lehnt die Datei ab (HTTP {status}).</translation>
</message>
<message>
<source>The token of {place} has characters that no token has, so it is not sent.</source>
<translation>Das Token aus {place} hat Zeichen, die kein Token hat, und wird daher nicht gesendet.</translation>
</message>
<message>
<source>{host} refuses the token of {place} (HTTP {status}), so it was asked without the token.</source>
<translation>{host} lehnt das Token aus {place} ab (HTTP {status}), daher wurde ohne das Token gefragt.</translation>
</message>
<message>
<source>{host} asks to wait, and does not say how long (HTTP {status}).</source>
<translation>{host} bittet zu warten und sagt nicht, wie lange (HTTP {status}).</translation>
</message>
<message>
<source>{host} asks to wait until {at:clock} (HTTP {status}).</source>
<translation>{host} bittet, bis {at:clock} zu warten (HTTP {status}).</translation>
</message>
<message>
<source>Changed by you.</source>
<translation>Von Ihnen geändert.</translation>
</message>
<message>
<source>it is damaged, or a part is missing</source>
<translation>sie ist beschädigt, oder ein Teil fehlt</translation>
</message>
<message>
<source>{file} cannot be imported: {reason}.</source>
<translation>{file} kann nicht importiert werden: {reason}.</translation>
</message>
<message>
<source>{file} is larger than {most:size}.</source>
<translation>{file} ist größer als {most:size}.</translation>
</message>
<message>
<source>The chats were written by a newer version of Outrider. They are left as they are, and what is said here is not kept.</source>
<translation>Die Chats stammen von einer neueren Version von Outrider. Sie bleiben, wie sie sind, und was hier gesagt wird, wird nicht aufbewahrt.</translation>
</message>
<message>
<source>the folder for them cannot be written</source>
<translation>in ihren Ordner kann nicht geschrieben werden</translation>
</message>
<message>
<source>The chats cannot be kept: {reason}.</source>
<translation>Die Chats können nicht aufbewahrt werden: {reason}.</translation>
</message>
<message>
<source>The chats cannot be read: {reason}.</source>
<translation>Die Chats können nicht gelesen werden: {reason}.</translation>
</message>
<message>
<source>What is said is not being kept: {reason}.</source>
<translation>Was gesagt wird, wird nicht aufbewahrt: {reason}.</translation>
</message>
<message>
<source>Stopped.</source>
<translation>Angehalten.</translation>
</message>
<message>
<source>Training in the background ({share:percent}).</source>
<translation>Training im Hintergrund ({share:percent}).</translation>
</message>
<message>
<source>A better predictor was found ({new:percent1} right instead of {old:percent1}); it is used when the model is loaded again.</source>
<translation>Eine bessere Vorhersage wurde gefunden ({new:percent1} richtig statt {old:percent1}); sie gilt, wenn das Modell wieder geladen wird.</translation>
</message>
<message>
<source>The choice could not be kept: {reason}.</source>
<translation>Die Wahl konnte nicht gespeichert werden: {reason}.</translation>
</message>
<message>
<source>Training ended unexpectedly.</source>
<translation>Das Training endete unerwartet.</translation>
</message>
<message>
<source>Training came to nothing: {reason}</source>
<translation>Aus dem Training wurde nichts: {reason}</translation>
</message>
<message>
<source>Training begins when nobody has used the engine for a while.</source>
<translation>Das Training beginnt, wenn das Modell eine Weile nicht benutzt wurde.</translation>
</message>
<message>
<source>This model runs without the expert cache, so nothing is recorded.</source>
<translation>Dieses Modell läuft ohne den Expertenspeicher, also wird nichts aufgezeichnet.</translation>
</message>
<message>
<source>This model has no experts, so there is nothing to learn.</source>
<translation>Dieses Modell hat keine Experten, also gibt es nichts zu lernen.</translation>
</message>
<message>
<source>This model does not show what its experts compute with, so there is nothing to learn.</source>
<translation>Dieses Modell zeigt nicht, womit seine Experten rechnen, also gibt es nichts zu lernen.</translation>
</message>
<message>
<source>Answers will be recorded once a model is loaded.</source>
<translation>Antworten werden aufgezeichnet, sobald ein Modell geladen ist.</translation>
</message>
<message>
<source>The last training found nothing better ({new:percent1} right instead of {old:percent1}).</source>
<translation>Das letzte Training fand nichts Besseres ({new:percent1} richtig statt {old:percent1}).</translation>
</message>
<message>
<source>An answer could not be recorded: {reason}</source>
<translation>Eine Antwort konnte nicht aufgezeichnet werden: {reason}</translation>
</message>
<message>
<source>Training could not be started: {reason}.</source>
<translation>Das Training konnte nicht gestartet werden: {reason}.</translation>
</message>
<message>
<source>Nothing is recorded.</source>
<translation>Nichts wird aufgezeichnet.</translation>
</message>
<message>
<source>Training waits for the engine ({share:percent}).</source>
<translation>Das Training wartet auf das Modell ({share:percent}).</translation>
</message>
<message>
<source>{n:count} of the {enough:count} tokens that training needs are recorded.</source>
<translation>{n:count} von {enough:count} Token, die das Training braucht, sind aufgezeichnet.</translation>
</message>
<message>
<source>A page&apos;s origin is such as https://chat.example, without a path, not {origin}.</source>
<translation>Der Ursprung einer Seite sieht aus wie https://chat.example, ohne Pfad, nicht {origin}.</translation>
</message>
<message>
<source>Port {port} cannot be used: {reason}.</source>
<translation>Der Port {port} kann nicht benutzt werden: {reason}.</translation>
</message>
<message>
<source>A key that other machines may try must have at least {n} characters.</source>
<translation>Ein Schlüssel, den andere Rechner probieren können, muss mindestens {n} Zeichen haben.</translation>
</message>
<message>
<source>The entry of {name} is damaged.</source>
<translation>Der Eintrag von {name} ist beschädigt.</translation>
</message>
<message>
<source>A header of {name} has characters that headers cannot have.</source>
<translation>Eine Kopfzeile von {name} hat Zeichen, die Kopfzeilen nicht haben können.</translation>
</message>
<message>
<source>The name of a server needs 1 to {limit} visible characters.</source>
<translation>Der Name eines Servers braucht 1 bis {limit} sichtbare Zeichen.</translation>
</message>
<message>
<source>The address of {name} must begin with http:// or https://.</source>
<translation>Die Adresse von {name} muss mit http:// oder https:// beginnen.</translation>
</message>
<message>
<source>An argument or a variable of {name} is too long or cannot be used.</source>
<translation>Ein Argument oder eine Variable von {name} ist zu lang oder nicht verwendbar.</translation>
</message>
<message>
<source>The call failed: {reason}</source>
<translation>Der Aufruf ist gescheitert: {reason}</translation>
</message>
<message>
<source>The call was stopped.</source>
<translation>Der Aufruf wurde abgebrochen.</translation>
</message>
<message>
<source>The call took longer than {seconds} seconds and was ended.</source>
<translation>Der Aufruf hat länger als {seconds} Sekunden gedauert und wurde beendet.</translation>
</message>
<message>
<source>It is not offered, because its arguments are nested too deeply.</source>
<translation>Es wird nicht angeboten, weil seine Argumente zu tief verschachtelt sind.</translation>
</message>
<message>
<source>The server has ended.</source>
<translation>Der Server ist beendet.</translation>
</message>
<message>
<source>The file of tools</source>
<translation>Die Datei der Werkzeuge</translation>
</message>
<message>
<source>{file} is damaged: it is not JSON.</source>
<translation>{file} ist beschädigt: Es ist kein JSON.</translation>
</message>
<message>
<source>{file} could not be read: {reason}.</source>
<translation>{file} konnte nicht gelesen werden: {reason}.</translation>
</message>
<message>
<source>{file} is larger than {limit:size} and was not read.</source>
<translation>{file} ist größer als {limit:size} und wurde nicht gelesen.</translation>
</message>
<message>
<source>{file} names no servers of tools.</source>
<translation>{file} nennt keine Werkzeug-Server.</translation>
</message>
<message>
<source>The server sent far too many messages and was ended.</source>
<translation>Der Server hat viel zu viele Nachrichten geschickt und wurde beendet.</translation>
</message>
<message>
<source>The server refuses access (status {status}). Check the headers.</source>
<translation>Der Server verweigert den Zugang (Status {status}). Prüfen Sie die Kopfzeilen.</translation>
</message>
<message>
<source>The process that runs the servers ended. Start them again.</source>
<translation>Der Prozess, in dem die Server laufen, ist beendet. Starten Sie sie neu.</translation>
</message>
<message>
<source>It is not offered, because the description of its arguments has {n_byte:count} bytes, more than {limit:count}.</source>
<translation>Es wird nicht angeboten, weil die Beschreibung seiner Argumente {n_byte:count} Bytes hat, mehr als {limit:count}.</translation>
</message>
<message>
<source>The answer has {n:size} or more; at most {limit:size} are taken.</source>
<translation>Die Antwort hat {n:size} oder mehr; höchstens {limit:size} werden angenommen.</translation>
</message>
<message>
<source>The connection to the server broke, so the call may have run. Ask before you repeat it.</source>
<translation>Die Verbindung zum Server brach ab; der Aufruf wurde vielleicht ausgeführt. Fragen Sie, bevor Sie ihn wiederholen.</translation>
</message>
<message>
<source>The server sent a message of more than {limit:size} and was ended.</source>
<translation>Der Server hat eine Nachricht von mehr als {limit:size} geschickt und wurde beendet.</translation>
</message>
<message>
<source>{name} was left out: it has a value that only the other application can fill in.</source>
<translation>{name} wurde ausgelassen: Es hat einen Wert, den nur die andere Anwendung einsetzen kann.</translation>
</message>
<message>
<source>{name} needs a command or an address, and not both.</source>
<translation>{name} braucht einen Befehl oder eine Adresse, nicht beides.</translation>
</message>
<message>
<source>no server is used</source>
<translation>kein Server wird benutzt</translation>
</message>
<message>
<source>The server gave no reason.</source>
<translation>Der Server nannte keinen Grund.</translation>
</message>
<message>
<source>The server {name} is not running.</source>
<translation>Der Server {name} läuft nicht.</translation>
</message>
<message>
<source>It could not be started: {reason}.</source>
<translation>Er konnte nicht gestartet werden: {reason}.</translation>
</message>
<message>
<source>The server sent an answer that could not be understood.</source>
<translation>Der Server hat eine Antwort geschickt, die nicht zu verstehen ist.</translation>
</message>
<message>
<source>It is not offered, because its name is too long or has invisible characters.</source>
<translation>Es wird nicht angeboten, weil sein Name zu lang ist oder unsichtbare Zeichen hat.</translation>
</message>
<message>
<source>It is not offered, because its arguments name a number that JSON cannot say.</source>
<translation>Es wird nicht angeboten, weil seine Argumente eine Zahl nennen, die JSON nicht ausdrücken kann.</translation>
</message>
<message>
<source>{name} was left out: its transport, SSE, is out of use.</source>
<translation>{name} wurde ausgelassen: Seine Übertragung, SSE, ist außer Gebrauch.</translation>
</message>
<message>
<source>It could not be used: {reason}</source>
<translation>Er konnte nicht benutzt werden: {reason}</translation>
</message>
<message>
<source>The server was not ready after {seconds} seconds and was ended.</source>
<translation>Der Server war nach {seconds} Sekunden nicht bereit und wurde beendet.</translation>
</message>
<message>
<source>Only the first {limit} servers were taken.</source>
<translation>Nur die ersten {limit} Server wurden übernommen.</translation>
</message>
<message>
<source>The server needs a key.</source>
<translation>Der Server braucht einen Schlüssel.</translation>
</message>
<message>
<source>A port is a number from 0 to 65535, not {port}.</source>
<translation>Ein Port ist eine Zahl von 0 bis 65535, nicht {port}.</translation>
</message>
<message>
<source>The method computed experts in two parts, whose sum rounds differently from llama.cpp&apos;s: nothing behind it is shown.</source>
<translation>Das Verfahren hat Experten in zwei Teilen berechnet, deren Summe anders rundet als bei llama.cpp: Was danach kommt, ist nicht gezeigt.</translation>
</message>
<message>
<source>The processor computed experts of a device, which rounds differently from llama.cpp: nothing behind it is shown.</source>
<translation>Der Prozessor hat Experten eines Geräts berechnet, was anders rundet als bei llama.cpp: Was danach kommt, ist nicht gezeigt.</translation>
</message>
<message>
<source>Pass {number} has other rows of an image than its next ones: {n} of it were computed instead of {all}.</source>
<translation>Durchgang {number} hat andere Zeilen eines Bildes als die nächsten: {n} davon waren berechnet statt {all}.</translation>
</message>
<message>
<source>Pass {number}: the rows of an image are not those that llama.cpp computes of it.</source>
<translation>Durchgang {number}: Die Zeilen eines Bildes sind nicht die, die llama.cpp daraus berechnet.</translation>
</message>
<message>
<source>The log was written on another processor, or with other kernels of llama.cpp, whose last bits may differ.</source>
<translation>Das Protokoll stammt von einem anderen Prozessor oder von anderen Kerneln von llama.cpp, deren letzte Bits abweichen können.</translation>
</message>
<message>
<source>Pass {number}, row {row} (sequence {sequence}, position {position}): the logits are not those of stock llama.cpp.</source>
<translation>Durchgang {number}, Zeile {row} (Sequenz {sequence}, Position {position}): Die Logits sind nicht die von llama.cpp allein.</translation>
</message>
<message>
<source>Behind pass {number} llama.cpp answered {name} in another way.</source>
<translation>Nach Durchgang {number} hat llama.cpp {name} anders beantwortet.</translation>
</message>
<message>
<source>Pass {number} was not computed: the context has no free cell for its rows.</source>
<translation>Durchgang {number} wurde nicht berechnet: Der Kontext hat keine freie Zelle für seine Zeilen.</translation>
</message>
<message>
<source>The log&apos;s context has {name}, which is not llama.cpp&apos;s default and is not compared.</source>
<translation>Der Kontext des Protokolls hat {name}; das ist nicht llama.cpps Vorgabe und wird nicht verglichen.</translation>
</message>
<message>
<source>llama.cpp could not make the log&apos;s context.</source>
<translation>llama.cpp konnte den Kontext des Protokolls nicht anlegen.</translation>
</message>
<message>
<source>{command} was not found. Enter its whole path, or install it. These folders were searched: {places}.</source>
<translation>{command} wurde nicht gefunden. Geben Sie den ganzen Pfad ein, oder installieren Sie es. Durchsucht wurden diese Ordner: {places}.</translation>
</message>
<message>
<source>There is no file {command}.</source>
<translation>Es gibt keine Datei {command}.</translation>
</message>
<message>
<source>{command} is no program: the file may not be executed.</source>
<translation>{command} ist kein Programm: Die Datei darf nicht ausgeführt werden.</translation>
</message>
<message>
<source>Loading the model.</source>
<translation>Das Modell wird geladen.</translation>
</message>
<message>
<source>Measuring the machine.</source>
<translation>Der Rechner wird gemessen.</translation>
</message>
<message>
<source>Measuring the speed at two cache rates.</source>
<translation>Die Geschwindigkeit wird bei zwei Cache-Anteilen gemessen.</translation>
</message>
<message>
<source>Comparing {n:count} rows of logits with stock llama.cpp.</source>
<translation>{n:count} Zeilen von Logits werden mit unverändertem llama.cpp verglichen.</translation>
</message>
<message>
<source>Holding three turns of a chat.</source>
<translation>Drei Fragen eines Chats werden beantwortet.</translation>
</message>
<message>
<source>A device of the log is missing here: {device}.</source>
<translation>Ein Gerät des Protokolls fehlt hier: {device}.</translation>
</message>
<message>
<source>The log has no end: its process still writes, was killed, or its last lines are missing.</source>
<translation>Das Protokoll hat kein Ende: Sein Prozess schreibt noch, wurde getötet, oder die letzten Zeilen fehlen.</translation>
</message>
<message>
<source>The log names {name}, which none of its entries before has.</source>
<translation>Das Protokoll nennt {name}, was kein Eintrag davor enthält.</translation>
</message>
<message>
<source>llama.cpp could not load {file}.</source>
<translation>llama.cpp konnte {file} nicht laden.</translation>
</message>
<message>
<source>Answer {answer}: a token was chosen by row {row}, which has no logits.</source>
<translation>Antwort {answer}: Ein Token wurde nach Zeile {row} gewählt, die keine Logits hat.</translation>
</message>
<message>
<source>Answer {answer}: token {token} was chosen, but {best} is the most probable one.</source>
<translation>Antwort {answer}: Token {token} wurde gewählt, aber {best} ist das wahrscheinlichste.</translation>
</message>
<message>
<source>{file} is not the model of the log any more.</source>
<translation>{file} ist nicht mehr das Modell des Protokolls.</translation>
</message>
<message>
<source>Answer {answer}, token {place}: it was chosen by row {row} of pass {number}, but from position {position} on sequence {sequence} does not hold this answer.</source>
<translation>Antwort {answer}, Token {place}: Es wurde nach Zeile {row} von Durchgang {number} gewählt, aber ab Position {position} enthält Sequenz {sequence} nicht diese Antwort.</translation>
</message>
<message>
<source>llama.cpp makes other parts of a prompt of an image of the log.</source>
<translation>llama.cpp macht aus einem Bild des Protokolls andere Teile einer Eingabe.</translation>
</message>
<message>
<source>Pass {number}: position {position} of sequence {sequence} was computed, but the sequence has {n} positions.</source>
<translation>Durchgang {number}: Position {position} von Sequenz {sequence} wurde berechnet, aber die Sequenz hat {n} Positionen.</translation>
</message>
<message>
<source>Pass {number} has the logits of {n} rows instead of {all}.</source>
<translation>Durchgang {number} hat die Logits von {n} Zeilen statt {all}.</translation>
</message>
<message>
<source>Answer {answer}: token {token} was sent, but {chosen} was chosen.</source>
<translation>Antwort {answer}: Token {token} wurde gesendet, aber {chosen} wurde gewählt.</translation>
</message>
<message>
<source>The state of positions {begin} to {end} is not the one that stock llama.cpp computes of these tokens.</source>
<translation>Der Zustand der Positionen {begin} bis {end} ist nicht der, den llama.cpp allein aus diesen Token berechnet.</translation>
</message>
<message>
<source>Behind pass {number} sequence {sequence} went back to a state that is not of its tokens.</source>
<translation>Nach Durchgang {number} ging Sequenz {sequence} zu einem Zustand zurück, der nicht zu ihren Tokens gehört.</translation>
</message>
<message>
<source>Pass {number} computed position {position} of sequence {sequence} without the whole window before it.</source>
<translation>Durchgang {number} hat Position {position} der Sequenz {sequence} berechnet, ohne dass das ganze Fenster davor da war.</translation>
</message>
<message>
<source>Pass {number} was computed, but llama.cpp alone returns the status {status}.</source>
<translation>Durchgang {number} wurde berechnet, aber llama.cpp allein gibt den Status {status} zurück.</translation>
</message>
<message>
<source>The log has an entry {name}, which this version does not know.</source>
<translation>Das Protokoll hat einen Eintrag {name}, den diese Version nicht kennt.</translation>
</message>
<message>
<source>The log was written with version {version} of llama-cpp-python, and this is {found}.</source>
<translation>Das Protokoll wurde mit Version {version} von llama-cpp-python geschrieben; dies ist {found}.</translation>
</message>
<message>
<source>There is no such repository on {host}, or it is private and needs a token (in Get models, or HF_TOKEN).</source>
<translation>Es gibt kein solches Repository auf {host}, oder es ist privat und braucht ein Token (unter „Modelle holen“ oder in HF_TOKEN).</translation>
</message>
<message>
<source>The token of {name} could not be read: {reason}.</source>
<translation>Das Token von {name} konnte nicht gelesen werden: {reason}.</translation>
</message>
<message>
<source>This is no token: it is empty, or has characters that no token has.</source>
<translation>Das ist kein Token: Es ist leer, oder es hat Zeichen, die kein Token hat.</translation>
</message>
<message>
<source>The note on your token</source>
<translation>Der Vermerk über Ihr Token</translation>
</message>
<message>
<source>The token of {name} is used no more, but the keyring still has it: {reason}.</source>
<translation>Das Token von {name} wird nicht mehr verwendet, aber der Schlüsselbund hat es noch: {reason}.</translation>
</message>
<message>
<source>{host} does not know this token (HTTP 401). Copy it again, or make a new one there.</source>
<translation>{host} kennt dieses Token nicht (HTTP 401). Kopieren Sie es noch einmal, oder erzeugen Sie dort ein neues.</translation>
</message>
<message>
<source>the keyring failed ({reason})</source>
<translation>der Schlüsselbund versagte ({reason})</translation>
</message>
<message>
<source>the keyring stayed locked</source>
<translation>der Schlüsselbund blieb gesperrt</translation>
</message>
<message>
<source>whose it is could not be written down ({reason})</source>
<translation>wem es gehört, konnte nicht festgehalten werden ({reason})</translation>
</message>
<message>
<source>no keyring runs on this system</source>
<translation>auf diesem System läuft kein Schlüsselbund</translation>
</message>
<message>
<source>the keyring no longer has it</source>
<translation>der Schlüsselbund hat es nicht mehr</translation>
</message>
<message>
<source>the keyring did not answer within {seconds} s</source>
<translation>der Schlüsselbund antwortete nicht innerhalb von {seconds} s</translation>
</message>
<message>
<source>This repository is gated: accept its conditions on its page in a browser, and enter a token of the same account in Get models, or set HF_TOKEN to it.</source>
<translation>Dieses Repository ist zugangsbeschränkt: Nehmen Sie seine Bedingungen auf seiner Seite im Browser an, und geben Sie unter „Modelle holen“ ein Token desselben Kontos ein, oder setzen Sie HF_TOKEN darauf.</translation>
</message>
<message>
<source>{host} asks for a token (HTTP 401). Enter yours in Get models, or set HF_TOKEN to it.</source>
<translation>{host} verlangt ein Token (HTTP 401). Geben Sie Ihres unter „Modelle holen“ ein, oder setzen Sie HF_TOKEN darauf.</translation>
</message>
</context>
<context>
<name>methods</name>
<message>
<source>Adaptive</source>
<translation>Adaptiv</translation>
</message>
<message>
<source>stock llama.cpp</source>
<translation>llama.cpp unverändert</translation>
</message>
</context>
<context>
<name>sampling</name>
<message>
<source>Balanced</source>
<translation>Ausgewogen</translation>
</message>
<message>
<source>Precise</source>
<translation>Genau</translation>
</message>
<message>
<source>Creative</source>
<translation>Kreativ</translation>
</message>
<message>
<source>Own sampling</source>
<translation>Eigenes Sampling</translation>
</message>
</context>
<context>
<name>settings</name>
<message>
<source>Method</source>
<translation>Verfahren</translation>
</message>
<message>
<source>Context in tokens</source>
<translation>Kontext in Token</translation>
</message>
<message>
<source>Attention cache</source>
<translation>Attention-Cache</translation>
</message>
<message>
<source>16 bits</source>
<translation>16 Bit</translation>
</message>
<message>
<source>8 bits</source>
<translation>8 Bit</translation>
</message>
<message>
<source>4 bits</source>
<translation>4 Bit</translation>
</message>
<message>
<source>How the conversation is remembered: fewer bits need less memory.</source>
<translation>Wie die Unterhaltung gemerkt wird: weniger Bit brauchen weniger Speicher.</translation>
</message>
<message>
<source>Device</source>
<translation>Gerät</translation>
</message>
<message>
<source>Missing experts</source>
<translation>Fehlende Experten</translation>
</message>
<message>
<source>copy</source>
<translation>kopieren</translation>
</message>
<message>
<source>both</source>
<translation>beides</translation>
</message>
<message>
<source>compute</source>
<translation>rechnen</translation>
</message>
<message>
<source>Experts that the device lacks are copied to its memory, or computed by the processor where they lie.</source>
<translation>Experten, die dem Gerät fehlen, werden in seinen Speicher kopiert oder vom Prozessor berechnet, wo sie liegen.</translation>
</message>
<message>
<source>Drafts</source>
<translation>Entwürfe</translation>
</message>
<message>
<source>Threads</source>
<translation>Threads</translation>
</message>
<message>
<source>automatic</source>
<translation>automatisch</translation>
</message>
<message>
<source>Keep chats ready, in MiB</source>
<translation>Chats bereithalten, in MiB</translation>
</message>
<message>
<source>off</source>
<translation>aus</translation>
</message>
<message>
<source>Where the text repeats itself or the model has a layer for it, the next words are guessed and checked together. An edit or a quotation is then written faster.</source>
<translation>Wo sich der Text wiederholt oder das Modell eine Schicht dafür hat, werden die nächsten Wörter geraten und zusammen geprüft. Eine Bearbeitung oder ein Zitat wird dann schneller geschrieben.</translation>
</message>
<message>
<source>What the model has read of a chat stays on the drive, so that the chat goes on at once when you open it again. Never more than a tenth of the free space. A deleted chat leaves nothing.</source>
<translation>Was das Modell von einem Chat gelesen hat, bleibt auf dem Laufwerk, damit der Chat sofort weitergeht, wenn Sie ihn wieder öffnen. Nie mehr als ein Zehntel des freien Platzes. Ein gelöschter Chat hinterlässt nichts.</translation>
</message>
<message>
<source>Temperature</source>
<translation>Temperatur</translation>
</message>
<message>
<source>0 always takes the most probable token; higher is more varied.</source>
<translation>0 nimmt immer das wahrscheinlichste Token; höher wird es abwechslungsreicher.</translation>
</message>
<message>
<source>Top k</source>
<translation>Top k</translation>
</message>
<message>
<source>Only the k most probable tokens; 0: all.</source>
<translation>Nur die k wahrscheinlichsten Token; 0: alle.</translation>
</message>
<message>
<source>Top p</source>
<translation>Top p</translation>
</message>
<message>
<source>Only the most probable tokens that together have this probability; 1: all.</source>
<translation>Nur die wahrscheinlichsten Token, die zusammen diese Wahrscheinlichkeit haben; 1: alle.</translation>
</message>
<message>
<source>Min p</source>
<translation>Min p</translation>
</message>
<message>
<source>Only tokens with at least this share of the best one&apos;s probability; 0: all.</source>
<translation>Nur Token mit mindestens diesem Anteil an der Wahrscheinlichkeit des besten; 0: alle.</translation>
</message>
<message>
<source>Repeat penalty</source>
<translation>Wiederholungsabzug</translation>
</message>
<message>
<source>Above 1, recent tokens become less probable.</source>
<translation>Über 1 werden kürzlich vorgekommene Token unwahrscheinlicher.</translation>
</message>
</context>
<context>
<name>spoken</name>
<message>
<source>fraction</source>
<translation>Bruch</translation>
</message>
<message>
<source>over</source>
<translation>durch</translation>
</message>
<message>
<source>end of fraction</source>
<translation>Ende des Bruchs</translation>
</message>
<message>
<source>choose</source>
<translation>über</translation>
</message>
<message>
<source>square root of</source>
<translation>Wurzel aus</translation>
</message>
<message>
<source>root of degree</source>
<translation>Wurzel vom Grad</translation>
</message>
<message>
<source>end of root</source>
<translation>Ende der Wurzel</translation>
</message>
<message>
<source>taken of</source>
<translation>aus</translation>
</message>
<message>
<source>of</source>
<translation>über</translation>
</message>
<message>
<source>squared</source>
<translation>zum Quadrat</translation>
</message>
<message>
<source>cubed</source>
<translation>hoch drei</translation>
</message>
<message>
<source>to the power</source>
<translation>hoch</translation>
</message>
<message>
<source>end of power</source>
<translation>Ende der Hochzahl</translation>
</message>
<message>
<source>sub</source>
<translation>Index</translation>
</message>
<message>
<source>end of sub</source>
<translation>Ende des Index</translation>
</message>
<message>
<source>with above it</source>
<translation>mit darüber</translation>
</message>
<message>
<source>with below it</source>
<translation>mit darunter</translation>
</message>
<message>
<source>prime</source>
<translation>Strich</translation>
</message>
<message>
<source>double prime</source>
<translation>zwei Striche</translation>
</message>
<message>
<source>triple prime</source>
<translation>drei Striche</translation>
</message>
<message>
<source>hat</source>
<translation>Dach</translation>
</message>
<message>
<source>bar</source>
<translation>Strich</translation>
</message>
<message>
<source>tilde</source>
<translation>Tilde</translation>
</message>
<message>
<source>dot</source>
<translation>Punkt</translation>
</message>
<message>
<source>two dots</source>
<translation>zwei Punkte</translation>
</message>
<message>
<source>three dots</source>
<translation>drei Punkte</translation>
</message>
<message>
<source>vector</source>
<translation>Vektor</translation>
</message>
<message>
<source>check</source>
<translation>Hatschek</translation>
</message>
<message>
<source>breve</source>
<translation>Breve</translation>
</message>
<message>
<source>acute</source>
<translation>Akut</translation>
</message>
<message>
<source>grave</source>
<translation>Gravis</translation>
</message>
<message>
<source>ring</source>
<translation>Ring</translation>
</message>
<message>
<source>sum</source>
<translation>Summe</translation>
</message>
<message>
<source>product</source>
<translation>Produkt</translation>
</message>
<message>
<source>integral</source>
<translation>Integral</translation>
</message>
<message>
<source>double integral</source>
<translation>Doppelintegral</translation>
</message>
<message>
<source>triple integral</source>
<translation>Dreifachintegral</translation>
</message>
<message>
<source>contour integral</source>
<translation>Ringintegral</translation>
</message>
<message>
<source>union</source>
<translation>Vereinigung</translation>
</message>
<message>
<source>intersection</source>
<translation>Schnitt</translation>
</message>
<message>
<source>from</source>
<translation>von</translation>
</message>
<message>
<source>to</source>
<translation>bis</translation>
</message>
<message>
<source>in a box</source>
<translation>eingerahmt</translation>
</message>
<message>
<source>crossed out</source>
<translation>durchgestrichen</translation>
</message>
<message>
<source>end</source>
<translation>Ende</translation>
</message>
<message>
<source>table of {0} rows and {1} columns:</source>
<translation>Tabelle aus {0} Zeilen und {1} Spalten:</translation>
</message>
<message>
<source>row {0}:</source>
<translation>Zeile {0}:</translation>
</message>
<message>
<source>next column</source>
<translation>nächste Spalte</translation>
</message>
<message>
<source>plus</source>
<translation>plus</translation>
</message>
<message>
<source>minus</source>
<translation>minus</translation>
</message>
<message>
<source>plus or minus</source>
<translation>plus oder minus</translation>
</message>
<message>
<source>equals</source>
<translation>gleich</translation>
</message>
<message>
<source>does not equal</source>
<translation>ungleich</translation>
</message>
<message>
<source>is about</source>
<translation>ungefähr</translation>
</message>
<message>
<source>is less than</source>
<translation>kleiner als</translation>
</message>
<message>
<source>is greater than</source>
<translation>größer als</translation>
</message>
<message>
<source>is at most</source>
<translation>höchstens</translation>
</message>
<message>
<source>is at least</source>
<translation>mindestens</translation>
</message>
<message>
<source>times</source>
<translation>mal</translation>
</message>
<message>
<source>divided by</source>
<translation>geteilt durch</translation>
</message>
<message>
<source>goes to</source>
<translation>gegen</translation>
</message>
<message>
<source>implies</source>
<translation>daraus folgt</translation>
</message>
<message>
<source>if and only if</source>
<translation>genau dann, wenn</translation>
</message>
<message>
<source>is in</source>
<translation>in</translation>
</message>
<message>
<source>is not in</source>
<translation>nicht in</translation>
</message>
<message>
<source>infinity</source>
<translation>unendlich</translation>
</message>
<message>
<source>partial</source>
<translation>partiell</translation>
</message>
<message>
<source>nabla</source>
<translation>Nabla</translation>
</message>
<message>
<source>for all</source>
<translation>für alle</translation>
</message>
<message>
<source>there is</source>
<translation>es gibt</translation>
</message>
<message>
<source>open bracket</source>
<translation>Klammer auf</translation>
</message>
<message>
<source>close bracket</source>
<translation>Klammer zu</translation>
</message>
<message>
<source>factorial</source>
<translation>Fakultät</translation>
</message>
</context>
<context>
<name>tools</name>
<message>
<source>being written…</source>
<translation>wird geschrieben …</translation>
</message>
<message>
<source>asks to run</source>
<translation>möchte laufen</translation>
</message>
<message>
<source>running…</source>
<translation>läuft …</translation>
</message>
<message>
<source>done</source>
<translation>fertig</translation>
</message>
<message>
<source>failed</source>
<translation>fehlgeschlagen</translation>
</message>
<message>
<source>refused</source>
<translation>abgelehnt</translation>
</message>
<message>
<source>not run</source>
<translation>nicht ausgeführt</translation>
</message>
</context>
<context>
<name>units</name>
<message>
<source>d MMM yyyy</source>
<extracomment>The form of a date, in Qt&apos;s letters.</extracomment>
<translation>d. MMM yyyy</translation>
</message>
<message>
<source>token/s</source>
<translation>Token/s</translation>
</message>
</context>
<context>
<name>verdict</name>
<message>
<source>The model reads your question first: {done} of {total} so far.</source>
<translation>Das Modell liest zuerst Ihre Frage: {done} von {total} bisher.</translation>
</message>
<message>
<source>This model is larger than the memory it may use: {share} of its experts are in memory, and the others are read when they are needed.</source>
<translation>Dieses Modell ist größer als der Speicher, den es nutzen darf: {share} seiner Experten sind im Speicher, und die anderen werden gelesen, wenn sie gebraucht werden.</translation>
</message>
<message>
<source>Nearly all the time goes to computing: waiting for parts of the model takes {share}.</source>
<translation>Fast die ganze Zeit wird gerechnet: Das Warten auf Teile des Modells macht {share} aus.</translation>
</message>
<message>
<source>This model is larger than the memory of {device}, so parts of it are copied there while it answers: waiting for them takes {share} of the time.</source>
<translation>Dieses Modell ist größer als der Speicher von {device}, darum werden Teile davon dorthin kopiert, während es antwortet: Das Warten darauf macht {share} der Zeit aus.</translation>
</message>
<message>
<source>This model is larger than the memory it may use, so parts of it are read from the disk while it answers: waiting for them takes {share} of the time.</source>
<translation>Dieses Modell ist größer als der Speicher, den es nutzen darf, darum werden Teile davon vom Laufwerk gelesen, während es antwortet: Das Warten darauf macht {share} der Zeit aus.</translation>
</message>
<message>
<source>Other programs use {share} of the processor; the answer is faster without them.</source>
<translation>Andere Programme nutzen {share} des Prozessors; ohne sie ist die Antwort schneller.</translation>
</message>
<message>
<source>Reading the question took {time} before the first word, for {tokens}.</source>
<translation>Das Lesen der Frage dauerte {time} bis zum ersten Wort, für {tokens}.</translation>
</message>
<message>
<source>The file does not mark some control signs of its vocabulary as such; llama.cpp does. You need not do anything.</source>
<translation>Die Datei kennzeichnet einige Steuerzeichen ihres Wortschatzes nicht; llama.cpp tut es. Sie brauchen nichts zu tun.</translation>
</message>
<message>
<source>The model was trained for a longer context than the one that is set.</source>
<translation>Das Modell wurde für einen längeren Kontext trainiert als den eingestellten.</translation>
</message>
<message>
<source>The file&apos;s signs for the end of an answer do not agree. If answers do not end, look for a newer file of this model.</source>
<translation>Die Zeichen der Datei für das Ende einer Antwort passen nicht zusammen. Wenn Antworten nicht enden, suchen Sie eine neuere Datei dieses Modells.</translation>
</message>
<message>
<source>The vocabulary of the file has small faults, which llama.cpp has corrected. You need not do anything.</source>
<translation>Das Vokabular der Datei hat kleine Fehler, die llama.cpp behoben hat. Sie brauchen nichts zu tun.</translation>
</message>
<message>
<source>The vocabulary of the file lacks a sign. If answers are bad, look for a newer file of this model.</source>
<translation>Dem Vokabular der Datei fehlt ein Zeichen. Wenn Antworten schlecht sind, suchen Sie eine neuere Datei dieses Modells.</translation>
</message>
<message>
<source>llama.cpp corrected the file&apos;s signs for the end of an answer. You need not do anything.</source>
<translation>llama.cpp hat die Zeichen der Datei für das Ende einer Antwort berichtigt. Sie brauchen nichts zu tun.</translation>
</message>
<message>
<source>The file does not say how text is cut into tokens, so its answers may be worse. Look for a newer file of this model.</source>
<translation>Die Datei sagt nicht, wie Text in Token zerlegt wird; ihre Antworten können schlechter sein. Suchen Sie eine neuere Datei dieses Modells.</translation>
</message>
<message>
<source>The context that is set is longer than the model was trained for. Long chats may get worse answers.</source>
<translation>Der eingestellte Kontext ist länger, als das Modell gelernt hat. Lange Chats bekommen vielleicht schlechtere Antworten.</translation>
</message>
<message>
<source>The file has parts that llama.cpp does not use. You need not do anything.</source>
<translation>Die Datei hat Teile, die llama.cpp nicht benutzt. Sie brauchen nichts zu tun.</translation>
</message>
<message>
<source>The system could not map the file into memory, so loading may take longer.</source>
<translation>Das System konnte die Datei nicht in den Speicher abbilden, darum dauert das Laden vielleicht länger.</translation>
</message>
<message>
<source>The system did not keep the model in RAM, so it may move parts to the drive.</source>
<translation>Das System hat das Modell nicht im Arbeitsspeicher festgehalten und lagert vielleicht Teile auf das Laufwerk aus.</translation>
</message>
<message>
<source>The device cannot compute a part of this model, so the processor does.</source>
<translation>Das Gerät kann einen Teil dieses Modells nicht rechnen, darum tut es der Prozessor.</translation>
</message>
<message>
<source>llama.cpp does not compute this kind of model fully, so answers may be worse.</source>
<translation>llama.cpp rechnet diese Art von Modell nicht vollständig, darum sind Antworten vielleicht schlechter.</translation>
</message>
<message>
<source>The processor reads images, which takes longer.</source>
<translation>Der Prozessor liest die Bilder, was länger dauert.</translation>
</message>
<message>
<source>Places within images may be found less exactly: this model expects larger images.</source>
<translation>Stellen in Bildern werden vielleicht weniger genau gefunden: Dieses Modell erwartet größere Bilder.</translation>
</message>
<message>
<source>The system moves memory between processors (NUMA balancing), which may be slower.</source>
<translation>Das System verschiebt Speicher zwischen Prozessoren (NUMA-Balancing), was langsamer sein kann.</translation>
</message>
<message>
<source>llama.cpp has {n} more notes on this file; see Diagnostics.</source>
<translation>llama.cpp hat {n} weitere Hinweise zu dieser Datei; siehe Diagnose.</translation>
</message>
<message>
<source>llama.cpp has a note on this file; see Diagnostics.</source>
<translation>llama.cpp hat einen Hinweis zu dieser Datei; siehe Diagnose.</translation>
</message>
<message>
<source>Neither a larger cache nor another method would help.</source>
<translation>Weder ein größerer Cache noch ein anderes Verfahren würde helfen.</translation>
</message>
<message>
<source>No cache that fits into the free memory and no other method would make it noticeably faster.</source>
<translation>Kein Cache, der in den freien Speicher passt, und kein anderes Verfahren würde es merklich schneller machen.</translation>
</message>
<message>
<source>The method {method} would make it about {gain} times as fast.</source>
<translation>Das Verfahren {method} würde es etwa {gain}-mal so schnell machen.</translation>
</message>
<message>
<source>A cache of {size} instead of {now} would make it about {times} times as fast.</source>
<translation>Ein Cache von {size} statt {now} würde es etwa {times}-mal so schnell machen.</translation>
</message>
<message>
<source>The method {method} would make it about {gain} times as fast, a cache of {size} instead of {now} about {times} times.</source>
<translation>Das Verfahren {method} würde es etwa {gain}-mal so schnell machen, ein Cache von {size} statt {now} etwa {times}-mal.</translation>
</message>
<message>
<source>A cache of {size} instead of {now} would make it about {times} times as fast, the method {method} about {gain} times.</source>
<translation>Ein Cache von {size} statt {now} würde es etwa {times}-mal so schnell machen, das Verfahren {method} etwa {gain}-mal.</translation>
</message>
</context>
<context>
<name>welcome</name>
<message>
<source>Tell me a fairy tale about a tin soldier who learns to swim.</source>
<translation>Erzähl mir ein Märchen von einem Zinnsoldaten, der schwimmen lernt.</translation>
</message>
<message>
<source>Why does the sky turn red in the evening?</source>
<translation>Warum wird der Himmel am Abend rot?</translation>
</message>
<message>
<source>Write a letter to a friend who lives by the sea.</source>
<translation>Schreib einen Brief an eine Freundin, die am Meer wohnt.</translation>
</message>
<message>
<source>Ask me something</source>
<translation>Frag mich etwas</translation>
</message>
<message>
<source>Ready</source>
<translation>Bereit</translation>
</message>
<message>
<source>This is the embedded model: {size}, here to try things out. It makes up most of what it says.
For real use, get a larger model.</source>
<translation>Das ist das eingebaute Modell: {size}, zum Ausprobieren. Das meiste, was es sagt, ist erfunden.
Zum Arbeiten ein größeres Modell holen.</translation>
</message>
<message>
<source>{layers} layers of {experts} experts, {used} used</source>
<translation>{layers} Schichten mit {experts} Experten, {used} genutzt</translation>
</message>
</context>
</TS>
